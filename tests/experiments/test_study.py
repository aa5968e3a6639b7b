"""A study survives full disks, cuts and killed parents."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.test_search import quick
from torchlift.errors import CheckpointError


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_a_journal_that_was_cut_goes_on(tmp_path: Path, cut: int) -> None:
    first = quick(out=tmp_path, trials=3)
    journal = tmp_path / "study.journal"
    journal.write_bytes(journal.read_bytes()[:-cut])
    second = quick(out=tmp_path, trials=5, resume=True)
    assert [t.params for t in second.trials[:2]] == [t.params for t in first.trials[:2]]
    assert sum(t.state == "complete" for t in second.trials) >= 5


@pytest.mark.parametrize("call", ["pwrite", "fsync"])
@pytest.mark.parametrize("allowed", [0, 1, 4, 9])
def test_a_full_disk_keeps_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, allowed: int
) -> None:
    quick(out=tmp_path, trials=1)
    real, calls = getattr(os, call), [0]

    def full(handle: int, *rest: object) -> object:
        if not os.readlink(f"/proc/self/fd/{handle}").endswith("study.journal"):
            return real(handle, *rest)
        calls[0] += 1
        if calls[0] > allowed:
            if call == "pwrite":
                real(handle, rest[0][:5], rest[1])  # half a line reaches the disk
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(handle, *rest)

    monkeypatch.setattr(os, call, full)
    with pytest.raises(CheckpointError, match=r"No space left on device.*resume=True goes on"):
        quick(out=tmp_path, trials=4, resume=True)
    monkeypatch.undo()
    tuned = quick(out=tmp_path, trials=4, resume=True)
    assert sum(t.state == "complete" for t in tuned.trials) == 4


def test_a_journal_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    quick(out=tmp_path, trials=1)
    (tmp_path / "study.journal").unlink()
    (tmp_path / "study.journal").mkdir()
    with pytest.raises(CheckpointError, match=r"cannot (read|write) .*study\.journal") as caught:
        quick(out=tmp_path, trials=2, resume=True)
    assert "\n" not in str(caught.value)


def test_a_search_in_use_can_be_joined_but_not_taken(tmp_path: Path) -> None:
    out, mark = tmp_path / "search", tmp_path / "mark"
    settings = {"out": out, "callbacks": [lambda row: intrude()]}

    def intrude() -> None:
        if mark.exists():
            return
        mark.touch()
        with pytest.raises(CheckpointError, match="in use"):
            quick(trials=2, resume=True, **settings)
        with pytest.raises(CheckpointError, match="in use"):
            quick(trials=2, overwrite=True, **settings)
        mark.write_text(str(len(quick(trials=3, join=True, **settings).trials)))

    quick(trials=2, **settings)
    assert mark.read_text() == "3"
    assert not (out / ".lock").exists()


SEARCH = """
import sys, torch
from torchlift.experiments.tune import Range, search
from experiments.test_search import DATA, SetWeight, linear

if __name__ == "__main__":
    search(linear, DATA, DATA, recipe=SetWeight, space={"weight": Range(0.0, 6.0)}, loss="mse",
           optimizer=torch.optim.SGD, trials=100_000, prune=False, workers=2, out=sys.argv[1])
"""


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are listed by Linux only")
def test_workers_die_with_a_killed_parent(tmp_path: Path) -> None:
    script = tmp_path / "search.py"
    script.write_text(SEARCH)
    paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "t")], env=os.environ | {"PYTHONPATH": paths}
    )
    journal = tmp_path / "t" / "study.journal"
    deadline = time.monotonic() + 120
    while not (journal.exists() and journal.read_text().count('"op_code": 6') > 4):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    workers = children(process.pid)
    assert len(workers) >= 2
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 30
    while any(alive(worker) for worker in workers):
        assert time.monotonic() < deadline, "workers outlive their parent"
        time.sleep(0.05)
    size = journal.stat().st_size
    time.sleep(0.3)
    assert journal.stat().st_size == size
