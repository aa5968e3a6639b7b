"""Faults at the n-th touch of the disk: ``python faults.py FOLDER VERBS SAMPLES SEED [KINDS]``.

VERBS: some of smallest, fit, best-of, compare, auto, tune and overwrite, with commas; of each of the KINDS
of fault so many SAMPLES, 0 for all: ``exit`` (the process is gone before the n-th operation), ``cut`` (gone
after half of the n-th write), ``error`` (the n-th operation fails once), ``full`` (from the n-th on no write
succeeds), ``filled`` (before the n-th write a real disk, a tmpfs, is filled to its last page; only where one
can be mounted). A full disk must be told by name. Every faulty life is followed by one with ``resume=True``,
with room again, which must end as if nothing had happened, with nothing left over. Prints how many faults
were tried, and every one that made a difference, with which it exits 1. Lives are forked from one process
that has torch loaded.
"""

import contextlib
import errno
import io
import json
import os
import random
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # torch loads it with the first optimizer: once, before the first life
from safetensors.torch import load_file
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2]))

import torchlift as tl
from experiments.test_search import DATA, SetWeight, linear
from torchlift import deploy, report  # noqa: F401  (loaded once, before the first life)
from torchlift.experiments.tune import Range, search
from train.run.runs import data, model, run, stored_rows

WRITES = ("write", "fsync", "pwrite", "mkdir")
OTHERS = ("replace", "unlink", "truncate", "ftruncate", "rmdir")
KINDS = ("exit", "cut", "error", "full", "filled")
FULL = ("full", "filled")
DISK, PAGE = 1 << 22, 4096
"""Bytes of a disk that is filled, and of its pages."""
GONE, RAISED = 9, 3


class Disk:
    """Notes operations, and makes the n-th go wrong; ``root`` is on the disk that it fills."""

    def __init__(self, kind: str = "none", fatal: int = 0, root: Path = Path()) -> None:
        self.kind, self.fatal, self.root = kind, fatal, root
        self.names = list[str]()

    def touch(self, name: str, half: Callable[[], object] = lambda: None) -> None:
        self.names.append(name)
        count = len(self.names)
        full = self.kind == "full" and count >= self.fatal and name in WRITES
        if not (full or count == self.fatal):
            return
        if self.kind == "filled":
            fill(self.root / "ballast")
        if self.kind == "cut":
            half()
        if self.kind in ("exit", "cut"):
            os._exit(GONE)
        if full or self.kind == "error":
            number = errno.ENOSPC if full else errno.EIO
            raise OSError(number, os.strerror(number))


REAL_OPEN, REAL_WRITE = os.open, os.write


def fill(ballast: Path) -> None:
    """Write a file until the disk, a small one made for this, has no page left."""
    if shutil.disk_usage(ballast.parent).free > 2**30:
        raise RuntimeError(f"{ballast.parent} lies on a large disk: mount a small one for what fills it.")
    handle = REAL_OPEN(ballast, os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):
        while True:
            REAL_WRITE(handle, bytes(16 * PAGE))
    with contextlib.suppress(OSError):
        while True:
            REAL_WRITE(handle, bytes(PAGE))
    os.close(handle)


class File:
    """A file opened for writing, on such a disk."""

    def __init__(self, file: Any, disk: Disk) -> None:
        self.file, self.disk = file, disk

    def write(self, content: Any) -> int:
        self.disk.touch("write", lambda: (self.file.write(content[: len(content) // 2]), self.file.flush()))
        return self.file.write(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self) -> "File":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()


def install(disk: Disk, below: Path) -> None:
    """Put the disk under everything that writes below a folder."""
    real_open = io.open

    def opened(file: Any, mode: str = "r", *rest: Any, **more: Any) -> Any:
        opened_file = real_open(file, mode, *rest, **more)
        path = os.readlink(f"/proc/self/fd/{file}") if isinstance(file, int) else os.fspath(file)
        return File(opened_file, disk) if set(mode) & set("wa") and str(below) in str(path) else opened_file

    def wrapped(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            disk.touch(name)
            return real(*arguments, **options)

        return call

    def written(handle: int, content: bytes) -> int:
        if str(below) in os.readlink(f"/proc/self/fd/{handle}"):
            disk.touch("write", lambda: REAL_WRITE(handle, content[: len(content) // 2]))
        return REAL_WRITE(handle, content)

    io.open, os.write = opened, written
    for name in (*WRITES[1:], *OTHERS):
        setattr(os, name, wrapped(name, getattr(os, name)))


def fit(out: Path, train: Any = None, **how: bool) -> None:
    recipe = tl.recipes.NeuralLifting("0", width=4, mix=0.5)
    run(out, train=train or data(), recipe=recipe, epochs=3, batch_size=32, **how)


def smallest(out: Path, train: Any = None, **how: bool) -> None:
    """As little as a run can write."""
    run(out, nn.Linear(4, 2), train=train or data(), valid=None, epochs=1, batch_size=64, **how)


def best_of(out: Path, train: Any = None, **how: bool) -> None:
    candidates = {"mask": tl.lifts.SoftMask(), "prune": tl.recipes.MagnitudePruning(sparsity=0.5)}
    recipe = tl.recipes.BestOf(candidates, trials=0.5, price="FLOPs")
    run(out, train=train or data(), recipe=recipe, epochs=2, batch_size=32, **how)


def compare(out: Path, train: Any = None, **how: bool) -> None:
    settings = {"seeds": 1, "budget": 1, "batch_size": 32, "progress": False, "save_every": 0.0}
    recipes = {"mask": tl.lifts.SoftMask()}
    tl.compare(model, train or data(), data(), data(), recipes=recipes, out=out, **settings, **how)


def auto(out: Path, train: Any = None, **how: bool) -> None:
    settings = {"budget": 4, "batch_size": 32, "save_every": 0.0, "candidates": {"bits": "smol"}}
    torch.manual_seed(0)
    tl.auto(model(), train or data(), data(), out=out, **settings, **how)


def tune(out: Path, train: Any = None, **how: bool) -> None:
    settings = {"recipe": SetWeight, "space": {"weight": Range(0.0, 6.0)}, "optimizer": torch.optim.SGD}
    settings |= {"loss": "mse", "trials": 2, "prune": False}
    search(linear, train or DATA, DATA, out=out, **settings, **how)


def overwrite(out: Path, train: Any = None, **how: bool) -> None:
    """A run with another recipe is there already."""
    run(out, train=train or data(), batch_size=32, **(how or {"overwrite": True}))


VERBS = {
    "smallest": smallest,
    "fit": fit,
    "best-of": best_of,
    "compare": compare,
    "auto": auto,
    "tune": tune,
    "overwrite": overwrite,
}


def life(verb: str, out: Path, disk: Disk | None = None, **how: bool) -> int:
    """The exit code of a forked life; of one without a fault, its operations in ``operations``."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        torch.set_num_threads(1)
        if disk is not None:
            install(disk, out.parent)
        VERBS[verb](out, **how)
        code = 0
    except tl.TorchliftError as error:
        code = RAISED if well_told(str(error), disk) else 1
        if code == 1:
            print(error)
    except BaseException:
        traceback.print_exc()
    finally:
        if disk is not None and disk.fatal == 0:
            (out.parent / "operations").write_bytes(" ".join(disk.names).encode())
        sys.stdout.flush()
        os._exit(code)


def well_told(message: str, disk: Disk | None) -> bool:
    """Whether an error is one line, and names a full disk."""
    full = disk is not None and disk.kind in FULL
    return "\n" not in message and (not full or os.strerror(errno.ENOSPC) in message)


def story(verb: str, out: Path) -> Any:
    """What must not depend on faults."""
    if verb == "tune":
        actual = json.loads((out / "tuning.json").read_text())
        done = [trial["value"] for trial in actual["trials"] if trial["state"] == "complete"]
        return done, actual["value"], actual["best"]
    runs: dict[str, Any] = {}
    for folder in sorted(path.parent for path in out.rglob("result.json")):
        rows = [{k: v for k, v in row.items() if k != "seconds"} for row in stored_rows(folder)]
        summary = json.loads((folder / "result.json").read_text())
        weights = {name: value.tolist() for name, value in load_file(folder / "model.safetensors").items()}
        runs[str(folder.relative_to(out))] = (weights, rows, summary["cost"]["flops"], summary["results"])
    return runs


def left(out: Path) -> list[Path]:
    """What should have been cleaned up."""
    return [path for path in out.rglob("*") if path.name.startswith((".", "step-")) or path.suffix == ".tmp"]


def prepare(verb: str, out: Path) -> None:
    if verb == "overwrite":
        assert life("fit", out) == 0


def resumed(verb: str, out: Path) -> int:
    """The next life; where an overwrite had not begun, the old run is still there and raises."""
    code = life(verb, out, resume=True)
    if code == RAISED and verb == "overwrite":
        code = life(verb, out, overwrite=True)
    return code


def faults(verb: str, root: Path, kinds: Sequence[str], samples: int, seed: int) -> Iterator[str]:
    """Try them; a sentence for each that made a difference. The last line counts."""
    prepare(verb, root / "reference" / "run")
    code = life(verb, root / "reference" / "run", Disk())
    assert code == 0, f"without a fault it ends with {code}"
    names = (root / "reference" / "operations").read_text().split()
    expected = story(verb, root / "reference" / "run")
    chosen = spread(names, kinds, samples, random.Random(f"{seed} {verb}"))
    felt = 0
    for kind, number in chosen:
        code, wrong = trial(verb, root / f"{kind}{number}", Disk(kind, number, root), expected)
        felt += code != 0
        if wrong:
            yield f"{verb}, {kind} at {number} ({names[number - 1]}): {wrong}"
    yield f"{len(chosen)} faults at {len(names)} operations, {felt} ended the run"


def spread(
    names: list[str], kinds: Sequence[str], samples: int, chance: random.Random
) -> list[tuple[str, int]]:
    """Kinds and numbers: all, or ``samples`` of each kind, one fault in each of as many equal stretches.

    A disk is full where something is written; what only removes or renames does not notice.
    """
    total = len(names)
    writes = [number for number, name in enumerate(names, 1) if name in WRITES]
    if not 0 < samples < total:
        return [(kind, n) for kind in kinds for n in (writes if kind in FULL else range(1, total + 1))]
    drawn = chance.sample(list(kinds) * samples, len(kinds) * samples)
    width = total / len(drawn)
    return sorted({(kind, 1 + int((i + chance.random()) * width)) for i, kind in enumerate(drawn)})


def trial(verb: str, folder: Path, disk: Disk, expected: Any) -> tuple[int, str]:
    """One fault and the life after it; how the first ended, and what was wrong, if anything."""
    out = folder / "run"
    prepare(verb, out)
    first = life(verb, out, disk)
    (disk.root / "ballast").unlink(missing_ok=True)
    then = resumed(verb, out)
    if first not in (0, RAISED, GONE) or then != 0:
        return first, f"exit codes {first, then}"
    actual, rest = story(verb, out), [path.name for path in left(out)]
    shutil.rmtree(folder)
    return first, "another result" if actual != expected else f"left {rest}" if rest else ""


def print_wrong(verbs: str, trials: Callable[[str], Iterator[str]]) -> int:
    """Print what is wrong with each verb, and how much was tried; whether anything was."""
    bad = False
    for verb in verbs.split(","):
        with contextlib.redirect_stderr(sys.stdout):
            *wrong, last = trials(verb)
        print("\n".join([*wrong, f"{verb}: {last}"]), flush=True)
        bad |= bool(wrong)
    return int(bad)


@contextlib.contextmanager
def small_disk(root: Path) -> Generator[bool]:
    """A disk of its own at a folder; whether there is one."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(root)]
    there = (
        shutil.which("mount") is not None
        and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )
    try:
        yield there
    finally:
        if there:
            subprocess.run(["umount", str(root)], check=True)


def main(root: Path, verbs: str, samples: int, seed: int, kinds: Sequence[str]) -> int:
    with small_disk(root) as there:
        fit(root / "first")  # what is loaded and compiled by a first run is there for every life
        tried = [kind for kind in kinds if there or kind != "filled"]
        return print_wrong(verbs, lambda verb: faults(verb, root / verb, tried, samples, seed))


if __name__ == "__main__":
    chosen = sys.argv[5].split(",") if len(sys.argv) > 5 else KINDS
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), chosen))
