"""What a run costs beside its training: seconds in the history, checkpoints and records, and how they grow.

    python benchmarks/bookkeeping.py [--epochs 1000 10000 100000] [--modules 1000 5000]

Epochs: a network of 51 parameters on 64 samples, two steps an epoch, evaluated after each: about as little
training per row of the history as there can be; and LeNet-5 on one batch of 128 images. Modules: a chain of
2 × 2 layers in ``SoftMask``: its lift, its record and one checkpoint. Bookkeeping is timed inside the run,
where it is called, in seconds of this thread's processor, which a busy machine does not blur; waiting for the
disk counts in wall time only. Measuring the model for ``result.json`` (its size packed, its latency) happens
once a run, however long, and stands by itself.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

import torchlift as tl
from torchlift.models import LeNet5
from torchlift.train.checkpoint import load_checkpoint, save_checkpoint
from torchlift.train.history import History
from torchlift.train.run import folder, record
from torchlift.train.run.result import Result
from torchlift.train.store import Store

PARTS = {
    "history": [(History, "append"), (History, "mark")],
    "checkpoints": [(Store, "write"), (Store, "drop")],
    "folder": [(folder, "read_record"), (folder, "write_new_record"), (folder, "sweep"), (Result, "to_json")],
    "measuring": [(Result, "summary")],
}


@contextlib.contextmanager
def clocks() -> Iterator[dict[str, float]]:
    """Seconds spent in each part and not in a part within it, while this lasts."""
    spent = dict.fromkeys([*PARTS, "wall"], 0.0)
    inside = [0.0, 0.0]
    """Of the parts within the one at hand, since it began: this thread's seconds, and the wall's."""
    before = [(owner, name, getattr(owner, name)) for calls in PARTS.values() for owner, name in calls]

    def timed(section: str, real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            before, inside[:] = list(inside), [0.0, 0.0]
            started, wall = time.thread_time(), time.perf_counter()
            try:
                return real(*arguments, **options)
            finally:
                took, waited = time.thread_time() - started, time.perf_counter() - wall
                spent[section] += took - inside[0]
                spent["wall"] += (waited - inside[1]) * (section != "measuring")
                inside[:] = [before[0] + took, before[1] + waited]

        return call

    try:
        for section, calls in PARTS.items():
            for owner, name in calls:
                setattr(owner, name, timed(section, getattr(owner, name)))
        yield spent
    finally:
        for owner, name, real in before:
            setattr(owner, name, real)


def tiny() -> tuple[nn.Module, Any, dict[str, Any]]:
    """As little training per epoch as there can be."""
    x = torch.randn(64, 4)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1), nn.Linear(1, 1))
    return model, (x, (x.sum(1) > 0).long()), {"loss": "bce", "batch_size": 32}


def lenet() -> tuple[nn.Module, Any, dict[str, Any]]:
    """One batch an epoch."""
    return LeNet5(), (torch.randn(128, 3, 32, 32), torch.arange(128) % 10), {"batch_size": 128}


PROBLEMS: dict[str, Callable[[], tuple[nn.Module, Any, dict[str, Any]]]] = {"tiny": tiny, "lenet": lenet}


def long_run(problem: str, epochs: int) -> dict[str, Any]:
    """One run of so many epochs, saved as often as runs are by default, then resumed when it is done."""
    model, data, settings = PROBLEMS[problem]()
    settings |= {"epochs": epochs, "progress": False}
    with tempfile.TemporaryDirectory() as root, clocks() as spent:
        started, wall = time.thread_time(), time.perf_counter()
        tl.fit(model, data, data, out=root, **settings)
        total, wall = time.thread_time() - started, time.perf_counter() - wall
        fit_seconds = dict(spent)
        started = time.thread_time()
        tl.fit(model, data, data, out=root, resume=True, **settings)
        replay = time.thread_time() - started
        size = (Path(root) / "fits" / "0000" / "final.safetensors").stat().st_size
    waited, measuring = fit_seconds.pop("wall"), fit_seconds.pop("measuring")
    kept = sum(fit_seconds.values())
    row = {
        "problem": problem,
        "epochs": epochs,
        "seconds": round(total, 3),
        "bookkeeping": {section: round(seconds, 4) for section, seconds in fit_seconds.items()},
        "share": round(kept / total, 4),
        "share of wall time": round(waited / wall, 4),
        "microseconds per epoch": round(1e6 * kept / epochs, 1),
        "seconds of measuring the model": round(measuring, 3),
        "seconds to replay": round(replay, 3),
        "bytes of a checkpoint": size,
    }
    print(row, flush=True)
    return row


def many_modules(count: int) -> dict[str, Any]:
    """Lift, record, save and load a network of so many modules."""
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(count)))
    task = tl.Task(model, "mse")
    train = tl.train.source((torch.randn(8, 2), torch.randn(8, 2)), 8)
    marks = [time.thread_time()]

    def lap() -> float:
        marks.append(time.thread_time())
        return round(marks[-1] - marks[-2], 3)

    lifted = tl.lifts.SoftMask().lift(task)
    row: dict[str, Any] = {"modules": count, "lift": lap()}
    tl.lifts.SoftMask().project(lifted)
    row["project"] = lap()
    written = record.to_toml(record.fit_record(task, tl.recipes.Plain(), train, None, {}, dict))
    row |= {"record": lap(), "record bytes": len(written)}
    with tempfile.TemporaryDirectory() as root:
        save_checkpoint(Path(root) / "x", {"problem": lifted.state_dict()})
        row["save"] = lap()
        load_checkpoint(Path(root) / "x")
        row["load"] = lap()
    return row


def main() -> None:
    """Measure what ``results/bookkeeping.json`` does not hold yet, and write it there."""
    parser = argparse.ArgumentParser(description="seconds beside training, and how they grow")
    parser.add_argument("--epochs", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--lenet", type=int, nargs="+", default=[100, 1_000])
    parser.add_argument("--modules", type=int, nargs="+", default=[1_000, 5_000])
    parser.add_argument("--again", action="store_true", help="forget what was measured before")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    path = Path(__file__).parent / "results" / "bookkeeping.json"
    results: dict[str, Any] = {
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "runs": [],
        "modules": [],
    }
    if path.exists() and not arguments.again:
        results |= json.loads(path.read_text())
    for problem in PROBLEMS:
        long_run(problem, 10)  # what is loaded once is not the runs'
    cases = [("lenet", epochs) for epochs in arguments.lenet] + [
        ("tiny", epochs) for epochs in arguments.epochs
    ]
    for count in arguments.modules:
        if all(row["modules"] != count for row in results["modules"]):
            results["modules"].append(many_modules(count))
            path.write_text(json.dumps(results, indent=1) + "\n")
    for case in sorted(cases, key=lambda case: case[1]):
        if all((row.get("problem"), row["epochs"]) != case for row in results["runs"]):
            results["runs"].append(long_run(*case))
            path.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
