"""A journal: whole records or none, torn ones dropped, foreign ones told."""

import errno
import os
from pathlib import Path

import pytest

from torchlift.errors import CheckpointError
from torchlift.journal import Journal, drop_torn


def test_records_are_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal = Journal(path)
    assert list(journal.read()) == []
    journal.append({"a": 1}, {})
    path.write_bytes(path.read_bytes() + b'{"a": 3')
    assert list(journal.read()) == [{"a": 1}, {}]
    journal.append({"a": "4", "crc": 5})
    assert list(journal.read(1)) == [{}, {"a": "4", "crc": 5}]
    assert list(Journal(path).read(2)) == [{"a": "4", "crc": 5}]


@pytest.mark.parametrize(
    "line",
    [
        b'{"a": broken}\n',
        b'{"a": 1}\n',
        b"1\n",
        b"\n",
        b"\xff\x00\n",
        b"[" * 5000 + b"\n",
        b'{"a": 2, "crc": "00000000"}\n',
        b'{"a": 2, "crc": "00000000"} \n',
    ],
)
def test_a_whole_line_that_was_not_written_here_is_told(tmp_path: Path, line: bytes) -> None:
    journal = Journal(tmp_path / "j")
    journal.append({"a": 1})
    (tmp_path / "j").write_bytes((tmp_path / "j").read_bytes() + line)
    with pytest.raises(CheckpointError, match=r"^[^\n]*damaged, or of another run, in line 2[^\n]*$"):
        list(Journal(tmp_path / "j").read())


def test_a_record_of_another_owner_is_told(tmp_path: Path) -> None:
    Journal(tmp_path / "j", "one").append({"a": 1})
    assert list(Journal(tmp_path / "j", "one").read()) == [{"a": 1}]
    with pytest.raises(CheckpointError, match="of another run, in line 1"):
        list(Journal(tmp_path / "j", "two").read())


@pytest.mark.parametrize("call", ["pwrite", "fsync"])
def test_a_full_disk_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    journal = Journal(tmp_path / "j")
    journal.append({"a": 1})
    real = os.pwrite

    def full(handle: int, *rest: object) -> int:
        if rest:
            real(handle, rest[0][:5], rest[1])  # half a line reaches the disk
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(CheckpointError, match=r"j \(No space left on device\).*resume=True goes on"):
        journal.append({"a": 2})
    monkeypatch.undo()
    journal.append({"a": 3})
    assert list(journal.read()) == [{"a": 1}, {"a": 3}]


@pytest.mark.parametrize(
    ("text", "kept"), [(b"", 0), (b"a", 0), (b"a\n", 2), (b"a\nb", 2), (b"a\n" + b"b" * 9000, 2)]
)
def test_a_file_is_cut_at_its_last_whole_line(tmp_path: Path, text: bytes, kept: int) -> None:
    path = tmp_path / "j"
    path.write_bytes(text)
    handle = os.open(path, os.O_RDWR)
    try:
        assert drop_torn(handle) == kept
    finally:
        os.close(handle)
    assert path.read_bytes() == text[:kept]


def test_what_is_not_a_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"cannot read .*Is a directory"):
        list(Journal(tmp_path).read())
    with pytest.raises(CheckpointError, match="cannot write"):
        Journal(tmp_path / "gone" / "j").append({})
