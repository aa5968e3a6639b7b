"""Does training deeper and merging back pay? Critical lifting against plain training, two small networks."""

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Adam

from papers.common.arms import Entry, MeasuredRun, Row, difference, machine, measure, spread
from papers.common.first_samples import first_samples
from papers.common.protocol import few
from torchlift import Arm
from torchlift.data import Splits, teacher_student
from torchlift.experiments.executors import run_all
from torchlift.models import BlockNet, LeNet5
from torchlift.recipes import Deepened

SEEDS, TUNING = 5, (100, 101)
PLAIN = "plain"
IMAGES = 2_500


@dataclasses.dataclass(frozen=True)
class Setting:
    """A task, its network, the rates every arm chooses from, and where layers are inserted."""

    model: Callable[[], nn.Module]
    data: Callable[[int, str | None], Splits]
    after: str
    rates: tuple[float, ...]
    optimizer: Callable[[float], Any]
    loss: str
    epochs: float
    settings: Mapping[str, Any]
    tuning: tuple[int, ...] = TUNING
    """Seeds on which rates are chosen, not in the table."""
    images: int | None = None
    device: str | None = None

    def splits(self, seed: int, folder: str | None) -> Splits:
        """As many samples as are wanted."""
        return few(self.data(seed, folder), self.images)


def teachers(seed: int, folder: str | None) -> Splits:
    """Random residual networks of seven blocks, one for each seed."""
    del folder
    return teacher_student(7, seed=seed)


def pictures(seed: int, folder: str | None) -> Splits:
    """CIFAR-10: a few training and validation images, the same for all seeds, and half of the test images."""
    del seed
    some = first_samples("cifar10", IMAGES, 2 * IMAGES, None, folder)
    few_valid = some.valid[0][: IMAGES // 2], some.valid[1][: IMAGES // 2]
    return dataclasses.replace(some, valid=few_valid)


SETTINGS = {
    "teacher–student": Setting(
        partial(BlockNet, 1), teachers, "trunk.block1.linear2", (1e-3, 3e-3, 6e-3),
        lambda lr: partial(Adam, lr=lr), "mse", 12.0, {"batch_size": 100},
    ),
    "LeNet-5, CIFAR-10": Setting(
        partial(LeNet5, init="xavier"), pictures, "trunk.fc2", (1e-2, 2e-2, 5e-2),
        lambda lr: partial(SGD, lr=lr, momentum=0.9, weight_decay=5e-3), "cross_entropy", 6.0,
        {"batch_size": 128}, TUNING[:1],
    ),
}  # fmt: skip


def arm(one: Setting, name: str, lr: float) -> Entry:
    """One way of training at one rate."""
    settings: dict[str, Any] = {"loss": one.loss, "schedule": "cosine", "optimizer": one.optimizer(lr)}
    settings |= one.settings
    return Entry(f"{name}, lr {lr:g}", one.model, Arm(ARMS[name](one.after), **settings))


ARMS: dict[str, Callable[[str], Any]] = {
    PLAIN: lambda after: None,
    "deeper": lambda after: Deepened(after, finetune=0.25),
    "deeper, halfway": lambda after: Deepened(after, base=0.25, finetune=0.5),
}
"""Plain; deeper from the start; deeper in the second quarter of the budget."""


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
) -> Row:
    """Every arm at its best rate on every seed; 12 and 6 plain epochs unless given."""
    torch.set_num_threads(1)
    rows: list[Row] = []
    for name, one in SETTINGS.items():
        small = dataclasses.replace(one, images=images, device=device)
        rows += table(name, small, range(seeds or SEEDS), epochs or one.epochs, data, out / "depth_pays")
    lengths = [f"{name}: {epochs or one.epochs:g} plain epochs" for name, one in SETTINGS.items()]
    return {
        "title": "Training deeper by critical lifting and merging back",
        "source": "Our question to Bai et al. (2024); the tasks of neural lifting's Tables 2 and 3",
        "finding": "; ".join(sentence(row) for row in rows if row["arm"] != PLAIN),
        "scale": "; ".join(lengths) + f", {IMAGES:,} images of CIFAR-10",
        "seeds": list(range(seeds or SEEDS)),
        "machine": machine(),
        "columns": ["task", "arm", "rate", "test", "to plain", "cost"],
        "rows": rows,
        "notes": [
            "Every arm spends the FLOPs of the same number of plain epochs under a cosine, with the rate of "
            "three that is best on validation data of other seeds (two, one for LeNet-5); the weights are "
            "those of the best "
            "epoch on validation data.",
            "Teacher–student: the logarithm of the test error, so that e to the difference is the ratio to "
            "plain training. LeNet-5: test accuracy in per cent. Differences are paired by seed, with 95 %.",
        ],
    }


def table(
    task: str, one: Setting, seeds: Sequence[int], epochs: float, data: str | None, out: Path
) -> list[Row]:
    """A row for each arm at its best rate."""
    folder = out / f"{one.loss}-{epochs:g}-{one.images or 0}"
    rows: list[Row] = []
    for name in ARMS:
        lr = rate(one, name, epochs, data, folder)
        runs = several(one, name, lr, seeds, epochs, data, folder)
        values = [math.log(run.loss) if one.loss == "mse" else 100 * run.test for run in runs]
        plain = rows[0]["per seed"] if rows else values
        rows.append(
            {
                "task": task,
                "arm": name,
                "rate": lr,
                "test": spread(values),
                "to plain": difference(values, plain) | {"wins": wins(values, plain, one.loss == "mse")},
                "cost": statistics.fmean(run.cost for run in runs),
                "per seed": values,
            }
        )
    return rows


def wins(mine: Sequence[float], plain: Sequence[float], less_is_better: bool) -> int:
    """On how many seeds an arm is better than plain training: a smaller error, or a larger accuracy."""
    return sum((a < b) if less_is_better else (a > b) for a, b in zip(mine, plain, strict=True))


def rate(one: Setting, name: str, epochs: float, data: str | None, out: Path) -> float:
    """The best on validation data of the tuning seeds."""

    def worth(lr: float) -> float:
        runs = several(one, name, lr, one.tuning, epochs, data, out)
        return statistics.fmean(-math.log(run.valid) if one.loss == "mse" else run.valid for run in runs)

    return max(one.rates, key=worth)


def several(
    one: Setting, name: str, lr: float, seeds: Sequence[int], epochs: float, data: str | None, out: Path
) -> list[MeasuredRun]:
    """An arm at a rate on several seeds."""

    def on(seed: int) -> MeasuredRun:
        return measure(arm(one, name, lr), one.splits(seed, data), seed, epochs, out, one.device)

    return run_all(on, seeds)


def sentence(row: Row) -> str:
    """A row in words."""
    gap = row["to plain"]
    if row["task"].startswith("teacher"):
        mean, low, high = (math.exp(gap[key]) for key in ("mean", "low", "high"))
        return f"{row['task']}, {row['arm']}: {mean:.2f} of plain's test error [{low:.2f}, {high:.2f}]"
    return (
        f"{row['task']}, {row['arm']}: {row['test']['mean']:.2f} % "
        f"({gap['mean']:+.2f} [{gap['low']:+.2f}, {gap['high']:+.2f}] points to plain)"
    )
