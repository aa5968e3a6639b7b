"""BestOf on seven small tasks: beside plain training and each of its candidates alone."""

import dataclasses
import math
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import AdamW

import torchlift as tl
from papers.common.arms import Row, machine
from papers.common.cells import Cells
from papers.common.parts import part
from torchlift.data import Splits, load, teacher_student
from torchlift.errors import TorchliftError
from torchlift.experiments.arm import Setup
from torchlift.experiments.best_of import PLAIN, suggestions
from torchlift.methods.recipe import as_recipe
from torchlift.models import GPT, MLP, BlockNet, CharLSTM, LeNet5
from torchlift.recipes import BestOf
from torchlift.train.run.checks import DryRun

SEEDS, RATE, NEAR = 5, 3e-3, "within noise of the best"


@dataclasses.dataclass(frozen=True)
class Job:
    """A model, its data, its budget in epochs."""

    make: Callable[[], nn.Module]
    data: Callable[[str | None], Splits]
    epochs: float
    settings: Row = dataclasses.field(default_factory=dict[str, Any])

    def steps(self, data: str | None) -> int:
        """Steps in an epoch."""
        return math.ceil(len(self.data(data).train[0]) / self.settings.get("batch_size", 128))


class ConvNorm(nn.Sequential):
    """Two strided convolutions with batch normalization, and a linear layer."""

    def __init__(self) -> None:
        layers = [nn.Conv2d(3, 12, 3, 2, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU()]
        layers += [nn.Conv2d(12, 24, 3, 2, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU()]
        super().__init__(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(96, 10))


def few(name: str, train: int, held_out: int = 5000, length: int | None = None) -> Callable[..., Splits]:
    """As :func:`~papers.common.parts.part`, by the folder: few samples to learn from, many to judge by."""
    return lambda data: part(name, train, held_out, length, data)


def teachers(data: str | None) -> Splits:
    """A teacher of seven blocks."""
    del data
    return teacher_student(7, n=2000, seed=50)


JOBS: dict[str, Job] = {
    "teacher–student": Job(partial(BlockNet, 1), teachers, 60, {"loss": "mse"}),
    "perceptron, digits": Job(partial(MLP, 64, 32, 32, 10, flatten=True), lambda data: load("digits"), 40),
    "perceptron, MNIST": Job(partial(MLP, 784, 32, 10, flatten=True), few("mnist", 2000), 20),
    "LeNet-5, MNIST": Job(partial(LeNet5, (1, 28, 28)), few("mnist", 1000), 25, {"batch_size": 64}),
    "conv–BN, CIFAR-10": Job(ConvNorm, few("cifar10", 2000), 20, {"batch_size": 64}),
    "char-LSTM": Job(
        partial(CharLSTM, 50, width=48, layers=1), few("ptb-char", 500, 1000, 32), 20, {"batch_size": 32}
    ),
    "transformer": Job(
        partial(GPT, 50, context=32, width=32, depth=1, heads=2),
        few("ptb-char", 500, 1000, 32),
        20,
        {"batch_size": 32, "clip": 1.0},
    ),
}


def minus_loss(problem: tl.Problem, batch: Any) -> float:
    """What the best epoch is chosen by: the loss that is reported, and not, say, the accuracy."""
    return -float(problem.task_loss(batch))


def measured(job: Job, arm: tl.Arm, seed: int, data: str | None) -> Row:
    """One run of an arm at equal cost."""
    splits = job.data(data)
    shared: Row = {
        "optimizer": partial(AdamW, lr=RATE, weight_decay=1e-4),
        "keep": "best",
        "schedule": "cosine",
    }
    setup = Setup(job.make, (splits.train, splits.valid, splits.test), shared | job.settings)
    try:
        result = setup.run(arm, seed, epochs=job.epochs, equal_cost=True, metric=minus_loss, progress=False)
    except TorchliftError as reason:
        return {"test": math.inf, "reason": str(reason)}
    words = next((phase["what"][0] for phase in result.phases if phase["phase"] == "BestOf"), "")
    return {"test": result.scores["test"].loss, "cost": result.cost, "words": words}


def run(out: Path, data: str | None = None, seeds: int | None = None, scale: float | None = None) -> Row:
    """BestOf, and every candidate it has trials for alone, on every task; ``scale`` multiplies budgets."""
    torch.set_num_threads(1)
    numbers, factor = range(seeds or SEEDS), scale or 1.0
    cells = Cells(out / f"auto-tasks-{factor:g}.jsonl")
    rows: list[Row] = []
    for name, job in JOBS.items():
        job = dataclasses.replace(job, epochs=factor * job.epochs)
        task = tl.Task(job.make(), job.settings.get("loss", "cross_entropy"))
        known = {PLAIN: tl.Arm()} | suggestions(task.model)
        look = DryRun(job.data(data).train, 128)
        known = {arm: one for arm, one in known.items() if as_recipe(one.recipe).accepts(task, look) is None}
        known = dict(list(known.items())[: BestOf().affordable(job.epochs * job.steps(data))])
        arms = known | {"BestOf": tl.Arm(BestOf())}
        found = {
            (arm, seed): cells.get(f"{name} | {arm} | {seed}", partial(measured, job, one, seed, data))
            for arm, one in arms.items()
            for seed in numbers
        }
        rows += [row(name, seed, {arm: found[arm, seed] for arm in arms}) for seed in numbers]
        noise = spread_of([one["best alone"]["test"] for one in rows[-len(numbers) :]])
        for one in rows[-len(numbers) :]:
            one[NEAR] = one["BestOf"] <= one["best alone"]["test"] * math.exp(2 * noise)
            one["noise"] = noise
    return told(rows, numbers, factor)


def row(name: str, seed: int, found: dict[str, Row]) -> Row:
    """One task and seed."""
    alone = {arm: one["test"] for arm, one in found.items() if arm != "BestOf"}
    best = min(alone, key=lambda arm: alone[arm])
    auto, plain = found["BestOf"]["test"], alone[PLAIN]
    return {
        "task": name,
        "seed": seed,
        "BestOf": auto,
        "plain": plain,
        "best alone": {"arm": best, "test": alone[best]},
        "BestOf / plain": auto / plain,
        "BestOf / best": auto / alone[best],
        "choice": found["BestOf"].get("words", ""),
        "alone": alone,
    }


def spread_of(values: list[float]) -> float:
    """The sample standard deviation of the logarithms."""
    return statistics.stdev([math.log(value) for value in values]) if len(values) > 1 else 0.0


def told(rows: list[Row], numbers: range, factor: float) -> Row:
    """The entry."""
    near = sum(one[NEAR] for one in rows)
    worse = sum(one["BestOf / plain"] > 1.01 for one in rows)
    mean = math.exp(statistics.fmean(math.log(one["BestOf / plain"]) for one in rows))
    return {
        "title": "BestOf on seven small tasks",
        "source": "our own measurement",
        "finding": f"BestOf has {mean:.2f} times the test loss of plain AdamW at {RATE:g} (geometric mean), "
        f"is worse by more than 1 % on {worse} of {len(rows)} pairs of task and seed, and within noise of "
        f"the best of its candidates alone on {near} of {len(rows)}.",
        "scale": f"{factor:g} times the budgets of the entry; equal FLOPs",
        "seeds": list(numbers),
        "machine": machine(),
        "columns": [
            "task",
            "seed",
            "BestOf",
            "plain",
            "BestOf / plain",
            "BestOf / best",
            NEAR,
        ],
        "rows": rows,
        "notes": [
            "Test loss of the epoch whose validation loss is least, for every arm.",
            "Noise: twice the standard deviation over seeds of the logarithm of the best one's. "
            "The best candidate is the best on test data, so it has luck on its side; alone it spends the "
            "whole budget.",
        ],
    }
