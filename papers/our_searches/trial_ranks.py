"""How well short runs rank candidates: rank correlation with whole runs, by the length of the trial."""

import math
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.optim import AdamW

import torchlift as tl
from papers.common.arms import Row, machine
from papers.common.cells import Cells
from papers.common.protocol import few
from papers.common.rivals import minus_loss
from papers.our_searches.held_out import ranks, warm_cosine
from torchlift.data import Splits, load, teacher_student
from torchlift.experiments.arm import Setup
from torchlift.experiments.best_of import PLAIN, suggestions
from torchlift.experiments.step_times import step_times
from torchlift.models import MLP, BlockNet
from torchlift.train.run.checks import DryRun

PARTS, STEPS, BATCH, SEEDS = (1 / 12, 1 / 6, 1 / 3, 1 / 2), 480, 64, 2
"""Lengths of trials as parts of a run, and the steps of plain training whose time a run has."""
TASKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Splits], str]] = {
    "perceptron, digits": (
        partial(MLP, 64, 32, 32, 10, flatten=True),
        lambda: load("digits"),
        "cross_entropy",
    ),
    "teacher–student": (partial(BlockNet, 1), lambda: teacher_student(7, n=2000, seed=50), "mse"),
}
"""Not those of the held-out contest."""


def losses(
    cells: Cells, name: str, seed: int, share: float, whole: float | None, images: int | None
) -> dict[str, float]:
    """Validation loss of every candidate after a complete run of a part of the length, at equal CPU time."""
    make, data, loss = TASKS[name]
    splits = few(data(), images)
    arms = {PLAIN: tl.Arm(), **suggestions(make())}
    shared: Row = {"loss": loss, "batch_size": BATCH, "schedule": warm_cosine, "keep": "last"}
    shared["optimizer"] = partial(AdamW, lr=3e-3, weight_decay=0.0)
    setup = Setup(make, (splits.train, splits.valid, None), shared)
    seconds = cells.get(
        f"{name} | seconds",
        lambda: step_times(arms, tl.Task(make(), loss), DryRun(splits.train, BATCH), rounds=8),
    )
    epochs = share * (whole or STEPS / math.ceil(len(splits.train[0]) / BATCH))

    def run(way: str) -> float:
        price = seconds[way] or seconds[PLAIN]  # 0: steps of their own, which were not measured
        own = epochs * seconds[PLAIN] / price
        result = setup.run(arms[way], seed, epochs=own, metric=minus_loss, progress=False)
        return result.scores["valid"].loss

    return {
        way: cells.get(f"{name} | {way} | {seed} | {share:.3f}", partial(run, way)) for way in sorted(arms)
    }


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
) -> Row:
    """Every candidate at every length, on two tasks; 480 steps of plain training unless given in epochs."""
    del data
    torch.set_num_threads(1)
    numbers = range(seeds or SEEDS)
    cells = Cells(out / f"trial-ranks-{epochs or 0:g}-{images or 0}.jsonl")
    rows: list[Row] = []
    for name in TASKS:
        whole = {seed: losses(cells, name, seed, 1.0, epochs, images) for seed in numbers}
        for share in PARTS:
            correlations: list[float] = []
            regret: list[float] = []
            for seed in numbers:
                trial, end = losses(cells, name, seed, share, epochs, images), whole[seed]
                values = ranks(list(trial.values())), ranks(list(end.values()))
                correlations.append(statistics.correlation(*values))
                regret.append(end[min(trial, key=lambda way: trial[way])] / min(end.values()))
            rows.append(
                {
                    "task": name,
                    "part": share,
                    "rank correlation": statistics.fmean(correlations),
                    "loss of its choice to the best": statistics.fmean(regret),
                }
            )
    return {
        "title": "How well short runs rank candidates",
        "source": "our own measurement",
        "finding": "; ".join(
            f"{row['task']}, {row['part']:.2f} of the run: {row['rank correlation']:.2f}" for row in rows
        )
        + ".",
        "scale": (f"{epochs:g} epochs" if epochs else f"{STEPS} steps")
        + " of plain training, equal CPU time, complete runs",
        "seeds": list(numbers),
        "machine": machine(),
        "columns": list(rows[0]),
        "rows": rows,
        "notes": ["Spearman's correlation of validation losses with those of whole runs from the same seed."],
    }
