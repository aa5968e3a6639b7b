"""The history only grows; a checkpoint knows a position in it."""

import json
import os
from pathlib import Path

import pytest

from torchlift.errors import CheckpointError
from torchlift.train import History
from train.run.runs import data, model, run, same, stored_rows


def filled(path: Path, rows: int) -> History:
    history = History(path)
    for number in range(rows):
        history.append({"epoch": number, "loss": float("nan") if number == 1 else number / 3})
    return history


def test_a_history_is_cut_back_to_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history = filled(path, 2)
    mark = history.mark()
    expected = list(history.rows)
    history.append({"epoch": 2})
    path.write_bytes(path.read_bytes() + b'{"half')
    again = History(path)
    again.rewind(mark)
    assert again.rows == expected == stored_rows(tmp_path)
    again.append({"epoch": 7})
    assert [row["epoch"] for row in stored_rows(tmp_path)] == [0, 1, 7]
    assert again.slice(1, 3) == again.rows[1:]


def test_one_of_several_processes_writes_and_all_keep_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    mark = filled(path, 3).mark()
    reader = History(path, writes=False)
    reader.rewind(mark)
    reader.append({"epoch": 3})
    assert len(reader.rows) == 4
    assert len(stored_rows(tmp_path)) == 3


@pytest.mark.parametrize("harm", ["cut", "edited", "gone", "no rows"])
def test_a_history_that_is_not_as_the_checkpoint_knows_it(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "history.jsonl"
    mark = filled(path, 3).mark()
    text = path.read_bytes()
    harmed = {"cut": text[:-9], "edited": text.replace(b"0.66", b"0.67"), "no rows": b"1\n2\n3\n"}
    path.unlink()
    if harm in harmed:
        path.write_bytes(harmed[harm])
    with pytest.raises(CheckpointError, match="history"):
        History(path).rewind(mark)


def test_checkpoints_do_not_grow_with_the_history(tmp_path: Path) -> None:
    sizes: dict[int, int] = {}

    def look(row: dict[str, object]) -> None:
        steps = sorted((tmp_path / "fits" / "0000").glob("step-*"))
        if steps:
            sizes[int(str(row["epoch"]))] = steps[-1].stat().st_size

    run(tmp_path, epochs=40, batch_size=64, listener=look)
    assert sizes[40] - sizes[3] < 100, "a checkpoint holds a position, not rows"


def test_rows_of_a_life_without_a_checkpoint_do_not_come_back(tmp_path: Path) -> None:
    """Killed after two epochs, before the first checkpoint: the resumed run begins anew, rows too."""

    class Killed(BaseException):
        pass

    def kill(row: dict[str, object]) -> None:
        if row["epoch"] == 2:
            raise Killed

    with pytest.raises(Killed):
        run(tmp_path, epochs=3, save_every=1e9, listener=kill)
    assert len(stored_rows(tmp_path)) == 2
    resumed = run(tmp_path, epochs=3, save_every=1e9, resume=True)
    assert [row["epoch"] for row in stored_rows(tmp_path)] == [1, 2, 3]
    assert same(resumed.model, run(None, epochs=3).model)


def test_a_fit_that_is_replayed_gives_the_same_rows(tmp_path: Path) -> None:
    seen: list[list[dict[str, object]]] = []
    log = tmp_path / "rows.jsonl"

    def recipe(task: object, fit: object) -> object:
        for name in ("a", "b"):
            rows = fit(task, name=name, share=0.5).rows
            with log.open("a") as file:
                file.write(json.dumps(rows) + "\n")
        return task

    run(tmp_path / "run", epochs=4, recipe=recipe)
    run(tmp_path / "run", epochs=4, recipe=recipe, resume=True)
    seen = [json.loads(line) for line in log.read_text().splitlines()]
    assert [len(rows) for rows in seen] == [2, 2, 2, 2]
    assert seen[:2] == seen[2:]
    assert [row["phase"] for row in seen[1]] == ["b", "b"]


def test_a_disk_that_takes_no_row_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot write"):
        History(tmp_path / "gone" / "history.jsonl").append({"epoch": 1})


def test_the_history_is_on_the_disk_before_a_checkpoint_points_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda handle: (synced.append(os.readlink(f"/proc/self/fd/{handle}")), real(handle))[1]
    )
    run(tmp_path, epochs=1, batch_size=64, train=data(), net=model())
    names = [Path(name).name for name in synced if Path(name).is_file() or name.endswith(".tmp")]
    final = next(number for number, name in enumerate(names) if name.startswith(".final"))
    assert "history.jsonl" in names[:final]


def test_rows_that_come_fast_reach_the_file_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, written = os.pwrite, list[int]()
    monkeypatch.setattr(os, "pwrite", lambda *args: (written.append(args[2]), real(*args))[1])
    path = tmp_path / "history.jsonl"
    history = filled(path, 300)
    assert len(stored_rows(tmp_path)) < 300, "some wait"
    mark = history.mark()
    assert len(stored_rows(tmp_path)) == 300
    assert len(written) < 100
    again = History(path)
    again.rewind(mark)
    assert again.rows == history.rows


def test_rows_that_wait_are_written_when_a_run_fails(tmp_path: Path) -> None:
    def stop(row: dict[str, object]) -> None:
        if row["epoch"] == 5:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        run(tmp_path, epochs=9, listener=stop, save_every=1e9)
    assert [row["epoch"] for row in stored_rows(tmp_path)] == [1, 2, 3, 4, 5]


def test_a_write_cut_short_is_told_and_taken_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history, real = filled(tmp_path / "h", 2), os.pwrite

    def full(handle: int, text: bytes, at: int) -> int:
        if len(text) < 20:
            raise OSError(28, "No space left on device")
        return real(handle, text[: len(text) // 2], at)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(CheckpointError, match="No space left"):
        history.mark()
    monkeypatch.undo()
    mark = history.mark()
    again = History(tmp_path / "h")
    again.rewind(mark)
    assert again.rows == history.rows
