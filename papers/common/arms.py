"""Arms of an experiment: the same model, data and seeds under several ways of training, durable."""

import dataclasses
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

import torchlift as tl
from torchlift.data import Splits
from torchlift.experiments.arm import Setup
from torchlift.experiments.comparison import paired
from torchlift.experiments.executors import run_all

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
class Measured:
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
) -> Measured:
    """Train one entry on one seed; a finished run is only read.

    ``budget``: at the cost of so many plain epochs. Without it the arm says its epochs.
    """
    shared: Row = {"keep": "best"} | ({} if device is None else {"device": device})
    shared |= {} if budget is None else {"epochs": budget, "equal_cost": True}
    setup = Setup(entry.make, (data.train, data.valid, data.test), shared)
    place = out / f"{entry.name.replace(' ', '-').replace('/', '-')}-{seed}"
    result = setup.run(entry.arm, seed, place, resume=True, progress=False)
    scores = result.scores
    params = sum(p.numel() for p in result.model.parameters())
    return Measured(
        scores["test"].metric,
        scores["valid"].metric,
        scores["test"].loss,
        result.cost,
        result.seconds,
        params,
        result.history,
    )


def tried(
    arms: Sequence[Entry], data: Callable[[int], Splits], seeds: Sequence[int], budget: float, out: Path
) -> list[Row]:
    """A row per arm: validation, test, cost, time, and the paired difference to the first arm."""
    jobs = [(arm, seed) for arm in arms for seed in seeds]
    runs = iter(run_all(lambda job: measure(job[0], data(job[1]), job[1], budget, out), jobs))
    found = {arm.name: [next(runs) for _ in seeds] for arm in arms}
    control = found[arms[0].name]
    return [
        {
            "arm": name,
            "validation": spread([one.valid for one in runs]),
            "test": spread([one.test for one in runs]),
            "test loss": spread([one.loss for one in runs]),
            "to the first, test": difference([a.test for a in runs], [b.test for b in control]),
            "to the first, loss": difference([a.loss for a in runs], [b.loss for b in control]),
            "cost": statistics.fmean(one.cost for one in runs),
            "seconds": statistics.fmean(one.seconds for one in runs),
            "per seed": [one.test for one in runs],
        }
        for name, runs in found.items()
    ]


def tuned(arms: Sequence[Entry], data: Splits, seed: int, budget: float, out: Path) -> dict[str, list[Row]]:
    """The arms of every recipe (the name up to its rate) on one seed, best on validation data first."""
    found: dict[str, list[Row]] = {}
    for arm, one in zip(arms, run_all(lambda arm: measure(arm, data, seed, budget, out), arms), strict=True):
        row: Row = {"arm": arm.name, "validation": one.valid, "test loss": one.loss}
        found.setdefault(arm.name.split(", lr")[0], []).append(row)
    return {name: sorted(rows, key=lambda row: -row["validation"]) for name, rows in found.items()}


def spread(values: Sequence[float]) -> dict[str, float]:
    """Mean and sample standard deviation, as the report's tables take them."""
    return {"mean": statistics.fmean(values), "sd": statistics.stdev(values) if len(values) > 1 else 0.0}


def difference(mine: Sequence[float], control: Sequence[float]) -> dict[str, float]:
    """The paired difference, seed by seed, with its 95 % interval and the number of wins."""
    found = paired([a - b for a, b in zip(mine, control, strict=True)])
    return {"mean": found.mean, "low": found.low, "high": found.high, "wins": found.wins}


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    return {"torch": torch.__version__, "cores": os.cpu_count(), "threads": torch.get_num_threads()} | {
        "python": platform.python_version()
    }
