"""Folders know whose they are: one run at a time, nothing of others touched, no old run for a new one."""

import errno
import fcntl
import json
import multiprocessing
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import torchlift as tl
from torchlift.errors import CheckpointError, DivergedError, TorchliftError
from torchlift.train.run import folder as folders
from torchlift.train.run.holder import holder_of, me, read_holder
from torchlift.train.run.labels import folder_name, folders_for
from torchlift.train.run.lock import Lock, claims
from torchlift.train.run.record import read_record
from train.run.runs import data, everything, model, run, same


@pytest.mark.parametrize("name", ["model.safetensors", "fits/mine", "tensorboard/mine", "report.html"])
@pytest.mark.parametrize("how", [{}, {"resume": True}, {"overwrite": True}])
def test_files_of_others_raise_and_are_never_touched(tmp_path: Path, name: str, how: dict) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    before = everything(tmp_path)
    with pytest.raises(CheckpointError, match=r"move it away or choose another folder"):
        run(tmp_path, **how)
    assert everything(tmp_path) == before


def nan_loss(net: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return net(batch[0]).mean() * float("nan")


def test_a_run_that_fails_at_once_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(DivergedError) as caught:
        run(tmp_path, loss=nan_loss)
    assert "kept" not in str(caught.value), "there is no checkpoint to promise"
    assert everything(tmp_path) == {"mine.txt": b"mine"}
    with pytest.raises(DivergedError):
        run(tmp_path / "new", loss=nan_loss)
    assert not (tmp_path / "new").exists()


def test_a_flat_record_of_an_earlier_version_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('torchlift = "0.1.0"\nrecipe = "Plain()"\n')
    for how in ({}, {"resume": True}, {"overwrite": True}):
        with pytest.raises(CheckpointError, match="is not a torchlift-run-1 record: choose another folder"):
            run(tmp_path, **how)


def test_a_folder_of_another_kind_raises(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(CheckpointError, match="holds a fit, not a comparison"):
        tl.compare(model, data(), data(), data(), recipes={}, seeds=1, budget=1, out=tmp_path, overwrite=True)


@pytest.mark.parametrize("how", [{}, {"resume": True}, {"overwrite": True}])
def test_a_folder_in_use_raises(tmp_path: Path, how: dict) -> None:
    alone = run(None)
    said: list[str] = []

    def intrude(row: dict[str, object]) -> None:
        with pytest.raises(CheckpointError, match=f"in use by process {os.getpid()} on") as caught:
            run(tmp_path, **how)
        said.append(str(caught.value))

    assert same(run(tmp_path, listener=intrude).model, alone.model)
    assert len(said) == 2
    assert not (tmp_path / ".lock").exists()
    assert same(run(tmp_path, resume=True).model, alone.model)


def test_the_lock_of_a_dead_holder_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text(json.dumps({"pid": 1, "host": "x", "boot": "", "started": ""}))
    run(tmp_path)
    assert not (tmp_path / ".lock").exists()


DEATHS = ("open", "link", "pwrite", "ftruncate", "unlink")


def dying(fatal: int, folder: Path) -> int:
    """The exit code of a process that is gone before its n-th touch of the disk while it locks a folder."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    left = fatal

    def mortal(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            return real(*args, **options) if left else os._exit(9)

        return call

    for name in DEATHS:
        setattr(os, name, mortal(getattr(os, name)))
    Lock(folder)
    os._exit(0)


def test_whoever_dies_while_it_locks_leaves_nothing(tmp_path: Path) -> None:
    fatal = 1
    while dying(fatal, tmp_path) == 9:
        assert (tmp_path / ".lock").stat().st_size if (tmp_path / ".lock").exists() else True
        Lock(tmp_path).release()
        assert not any(tmp_path.iterdir())
        fatal += 1
    assert fatal > len(DEATHS)


def no_locks(handle: int, operation: int) -> None:
    raise OSError(errno.ENOLCK, "No locks available")


def test_without_locks_in_the_file_system_the_holder_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", no_locks)
    mine = vars(me())
    for gone in ({"boot": "another"}, {"started": "1"}, {"pid": 2**22 + 1}):
        (tmp_path / ".lock").write_text(json.dumps(mine | gone))
        Lock(tmp_path).release()
    for there in ({}, {"host": "elsewhere"}):
        (tmp_path / ".lock").write_text(json.dumps(mine | there))
        with pytest.raises(CheckpointError, match="in use by process"):
            Lock(tmp_path)


def test_a_holder_is_told_from_a_later_process_of_its_number() -> None:
    parent = holder_of(os.getppid())
    assert parent is not None
    assert parent.lives()
    assert parent != me()
    assert read_holder(Path("/nowhere")) is None


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    """A DataLoader's worker may outlive a killed run by seconds."""
    lock = Lock(tmp_path)
    context = multiprocessing.get_context("fork")
    here, leave = context.Event(), context.Event()

    def stay() -> None:
        here.set()
        leave.wait()

    child = context.Process(target=stay)
    child.start()
    here.wait()
    os.close(lock.handle)  # as the kernel does when the parent is killed
    lock.handle = -1
    Lock.open_locks.discard(lock)
    try:
        Lock(tmp_path).release()
    finally:
        leave.set()
        child.join()


def test_shared_locks_keep_the_single_one_out(tmp_path: Path) -> None:
    first = Lock(tmp_path)
    first.share()
    second = Lock(tmp_path, shared=True)
    first.release()
    with pytest.raises(CheckpointError, match="in use"):
        Lock(tmp_path)
    second.release()
    assert not (tmp_path / ".lock").exists()
    Lock(tmp_path).release()


def test_checkpoints_of_another_run_raise(tmp_path: Path) -> None:
    run(tmp_path / "a")
    run(tmp_path / "b", seed=1)
    shutil.copy(tmp_path / "b/fits/0000/final.safetensors", tmp_path / "a/fits/0000/final.safetensors")
    with pytest.raises(CheckpointError, match="belongs to another run"):
        run(tmp_path / "a", resume=True)


@pytest.mark.parametrize("moved", range(1 + len(folders.OWNED["fit"])))
def test_an_interrupted_overwrite_never_gives_the_old_run_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    """After 0, 1, … renames; the new run asks for the same: nothing but the folder tells them apart."""
    old = run(tmp_path)
    (tmp_path / "mine.txt").write_text("mine")
    identity = read_record(tmp_path)["id"]
    real, calls = os.replace, [0]

    def replace(source: Path, target: Path) -> None:
        calls[0] += 1
        if calls[0] > moved:
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, overwrite=True)
    monkeypatch.undo()
    rows: list[object] = []
    new = run(tmp_path, resume=True, listener=rows.append)
    assert len(rows) == 2, "it must have been trained again"
    assert same(new.model, old.model)
    assert read_record(tmp_path)["id"] != identity
    assert not list(tmp_path.glob(".*"))
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_an_overwrite_replaces_everything_of_the_old_run(tmp_path: Path) -> None:
    run(tmp_path, recipe=tl.recipes.NeuralLifting("0", width=4), tensorboard=True)
    run(tmp_path, overwrite=True)
    assert [path.name for path in (tmp_path / "fits").iterdir()] == ["0000"]
    assert not (tmp_path / "tensorboard").exists()


def test_what_cannot_be_removed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path)

    def stuck(path: Path) -> None:
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(shutil, "rmtree", stuck)
    with pytest.raises(CheckpointError, match=r"cannot remove .*Permission denied.*by hand"):
        run(tmp_path, overwrite=True)


def test_leftovers_are_swept_up_on_resume_and_others_files_stay(tmp_path: Path) -> None:
    run(tmp_path)
    fit = tmp_path / "fits" / "0000"
    ours = [tmp_path / ".run.toml.0123abcd.tmp", fit / ".final.safetensors.0123abcd.tmp"]
    ours += [fit / "step-0000000007.safetensors"]
    theirs = [tmp_path / ".mine.0123abcd.tmp", tmp_path / "x.tmp", tmp_path / "step-1.safetensors"]
    for path in ours + theirs:
        path.write_text("half")
    run(tmp_path, resume=True)
    assert [path.exists() for path in ours + theirs] == [False] * 3 + [True] * 3


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_files_respect_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        run(tmp_path / "run")
    finally:
        os.umask(before)
    for path in (tmp_path / "run").rglob("*"):
        if path.is_file():
            assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask, path


def test_labels_do_not_share_folders(tmp_path: Path) -> None:
    recipes = {"a/b": tl.recipes.Plain(), "a-b": tl.lifts.SoftMask(), "..": None}
    settings = {"seeds": 1, "budget": 1, "batch_size": 16, "progress": False}
    comparison = tl.compare(model, data(), data(), data(), recipes=recipes, out=tmp_path / "c", **settings)
    assert len(list((tmp_path / "c").glob("*/run.toml"))) == 4
    again = tl.compare(
        model, data(), data(), data(), recipes=recipes, out=tmp_path / "c", resume=True, **settings
    )
    assert again.scores("a-b") == comparison.scores("a-b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c"]


def test_folder_names_differ_where_labels_do() -> None:
    assert folder_name("folded norm") == "folded norm"
    labels = ["a", "A", "a/b", "a-b", "a%2Fb", ".", "..", "", "x" * 300, "x" * 301, "naïve", "a b"]
    assert len({folder_name(label) for label in labels}) == len(labels)
    assert all("/" not in folder_name(label) and len(folder_name(label)) < 200 for label in labels)
    with pytest.raises(TorchliftError, match="share the folder"):
        folders_for(["a", "A"], [0])
    with pytest.raises(TorchliftError, match="share the folder"):
        folders_for(["a", "a-"], [-1, 1])


def test_overwriting_a_comparison_puts_all_its_runs_aside(tmp_path: Path) -> None:
    settings = {"seeds": 1, "budget": 1, "batch_size": 16, "progress": False, "out": tmp_path}
    tl.compare(model, data(), data(), data(), recipes={"mask": tl.lifts.SoftMask()}, **settings)
    (tmp_path / "mask-0" / "mine.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="holds a run already"):
        tl.compare(model, data(), data(), data(), recipes={}, **settings)
    tl.compare(model, data(), data(), data(), recipes={}, overwrite=True, **settings)
    assert everything(tmp_path / "mask-0") == {"mine.txt": b"mine"}
    assert (tmp_path / "plain-0" / "result.json").exists()


def test_a_comparison_goes_on_with_more_seeds_and_knows_all_its_runs(tmp_path: Path) -> None:
    settings = {"recipes": {}, "budget": 1, "batch_size": 16, "progress": False, "out": tmp_path}
    first = tl.compare(model, data(), data(), data(), seeds=1, **settings)
    second = tl.compare(model, data(), data(), data(), seeds=[1], resume=True, **settings)
    assert read_record(tmp_path)["folders"] == ["plain-0", "plain-1"]
    both = tl.compare(model, data(), data(), data(), seeds=2, resume=True, **settings)
    assert both.scores("plain") == first.scores("plain") + second.scores("plain")
    tl.compare(model, data(), data(), data(), seeds=1, overwrite=True, **settings)
    assert not (tmp_path / "plain-1").exists()


def test_claims_end_with_the_call_that_made_them(tmp_path: Path) -> None:
    with claims():
        lock = folders.claim(tmp_path)
        assert lock.handle >= 0
    assert lock.handle < 0
    assert not (tmp_path / ".lock").exists()
