"""Arms of an experiment: the same model, data and seeds under several ways of training, durable."""

import dataclasses
import os
import platform
import statistics
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import nn

import torchlift as tl
from torchlift.data import Splits
from torchlift.experiments.arm import Setup
from torchlift.experiments.comparison import PLAIN, paired

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Entry:
    """A line of a paper's table: a model, and the arm it is trained by."""

    name: str
    make: Callable[[], nn.Module]
    arm: tl.Arm = tl.Arm()  # noqa: RUF009  (a frozen value)
    paper: float | None = None
    """The paper's number, where it has one."""


@dataclasses.dataclass(frozen=True)
class MeasuredRun:
    """What one run gave, small enough to write down."""

    test: float
    """The metric on test data; ``valid`` on validation data."""
    valid: float
    loss: float
    """On test data."""
    cost: float
    seconds: float
    params: int
    history: list[Row]


def measure(
    entry: Entry, data: Splits, seed: int, budget: float | None, out: Path, device: str | None = None
) -> MeasuredRun:
    """Train one entry on one seed; a finished run is only read.

    ``budget``: at the cost of so many plain epochs. Without it the arm says its epochs.
    """
    shared: Row = {"keep": "best"} | ({} if device is None else {"device": device})
    shared |= {} if budget is None else {"epochs": budget, "equal_cost": True}
    setup = Setup(entry.make, (data.train, data.valid, data.test), shared)
    folder = out / f"{entry.name.replace(' ', '-').replace('/', '-')}-{seed}"
    result = setup.run(entry.arm, seed, folder, resume=True, progress=False)
    scores = result.scores
    params = sum(p.numel() for p in result.model.parameters())
    return MeasuredRun(
        scores["test"].metric,
        scores["valid"].metric,
        scores["test"].loss,
        result.cost,
        result.seconds,
        params,
        result.history,
    )


def selected_arms(names: Iterable[str], globs: str | None) -> list[str]:
    """The names that one of ``globs``, separated by semicolons, matches; without globs all."""
    every = list(names)
    wanted = [] if globs is None else [glob.strip() for glob in globs.split(";")]
    kept = [name for name in every if globs is None or any(fnmatchcase(name, glob) for glob in wanted)]
    if not kept:
        raise ValueError(f"--arms {globs!r} matches none of {', '.join(every)}")
    return kept


def without_arms(names: Iterable[str], kept: Iterable[str]) -> Row:
    """What a record says of arms that were left out."""
    missing = sorted(set(names) - set(kept))
    return {"partial": f"without {'; '.join(missing)}"} if missing else {}


def table(comparison: tl.Comparison, plain: str) -> list[Row]:
    """A row per label: validation, test, cost, time, and the paired difference to ``plain``."""
    runs = comparison.results
    test, loss = (
        {name: [getattr(run.scores["test"], key) for run in some] for name, some in runs.items()}
        for key in ("metric", "loss")
    )
    return [
        {
            "arm": plain if name == PLAIN else name,
            "validation": spread(comparison.scores(name, "valid")),
            "test": spread(test[name]),
            "test loss": spread(loss[name]),
            "to the first, test": difference(test[name], test[PLAIN]),
            "to the first, loss": difference(loss[name], loss[PLAIN]),
            "cost": statistics.fmean(map(comparison.cost, some)),
            "seconds": statistics.fmean(run.seconds for run in some),
            "per seed": test[name],
        }
        for name, some in runs.items()
    ]


def spread(values: Sequence[float]) -> dict[str, float]:
    """Mean and sample standard deviation, as the report's tables take them."""
    return {"mean": statistics.fmean(values), "sd": statistics.stdev(values) if len(values) > 1 else 0.0}


def difference(mine: Sequence[float], control: Sequence[float]) -> dict[str, float]:
    """The paired difference, seed by seed, with its 95 % interval and the number of wins."""
    gap = paired([a - b for a, b in zip(mine, control, strict=True)])
    return {"mean": gap.mean, "low": gap.low, "high": gap.high, "wins": gap.wins}


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    return {"torch": torch.__version__, "cores": os.cpu_count(), "threads": torch.get_num_threads()} | {
        "python": platform.python_version()
    }
