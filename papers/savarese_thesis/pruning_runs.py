"""Pruning runs side by side: a setting to train in, one run of it, and the record of all of them."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import SGD

from papers.common.arms import Row, machine, spread
from papers.common.cells import Cells
from papers.common.protocol import Protocol, few, protocol, share_of
from torchlift import Arm
from torchlift.core import Task
from torchlift.data import Splits, load
from torchlift.experiments.arm import Setup
from torchlift.methods.sparsity.pruned_weights import prunable_weights, sparsity
from torchlift.models import MLP, resnet

SOURCE = "Savarese, Principled Approximation Methods, chapter 4"
REWIND = 2


@dataclasses.dataclass(frozen=True, eq=False)
class Setting:
    """A network, its data, the epochs of one training, and how it is trained."""

    title: str
    make: Callable[[], nn.Module]
    data: Splits
    epochs: float
    fit: Mapping[str, Any]
    where: str = "*weight"
    share: float = 1.0
    """How much of its sweeps and rounds is wanted: less where little of the training is."""

    def rounds(self, count: int) -> int:
        """The rounds of a search at this share."""
        return math.ceil(self.share * count)

    @property
    def rewind(self) -> int:
        """The epoch whose weights a ticket starts from: the second, or an earlier one of fewer."""
        return min(REWIND, math.ceil(self.epochs) - 1)

    def arm(self, recipe: Any, trainings: float) -> Arm:
        """A recipe that may cost so many trainings."""
        return Arm(recipe, epochs=trainings * self.epochs)

    def model(self, seed: int) -> nn.Module:
        """The network of a seed."""
        torch.manual_seed(seed)
        return self.make()


def sgd(lr: float, decay: float = 1e-4, batch: int = 64, **more: Any) -> dict[str, Any]:
    """SGD with momentum, as all experiments of the chapter but one."""
    optimizer = partial(SGD, lr=lr, momentum=0.9, weight_decay=decay)
    return {"optimizer": optimizer, "batch_size": batch, "progress": False, **more}


def digits(epochs: float, **fit: Any) -> Setting:
    """The smallest setting: a perceptron on scikit-learn's digits."""
    title = "64-300-100-10 on scikit-learn's digits"
    return Setting(title, partial(MLP, 64, 300, 100, 10), load("digits"), epochs, fit)


TICKETS = protocol("savarese_thesis", "Table 4.2")


def whole(name: str, folder: str | Path | None) -> Splits:
    """All training images to train on, as in the source: nothing is held out but the test images."""
    splits = load(name, folder)
    x, y = (torch.cat(pair) for pair in zip(splits.train, splits.valid, strict=True))
    return Splits((x, y), splits.test, splits.test, splits.kind)


def resnet20(folder: str | Path | None, published: Protocol = TICKETS, arm: str = "ResNet-20") -> Setting:
    """The setting of most figures: all convolutions but the 1×1 shortcuts are pruned."""
    fit = published.settings(arm) | {"progress": False}
    epochs = published.length(arm, None)
    return Setting(
        "ResNet-20, CIFAR-10", partial(resnet, 20), whole("cifar10", folder), epochs, fit, "*conv*weight"
    )


def sized(setting: Setting, epochs: float | None, images: int | None, device: str | None) -> Setting:
    """The same setting with fewer epochs or images, and with thinner sweeps where very few; on a device."""
    title = setting.title if images is None else f"{setting.title}, {images} images"
    fit = setting.fit if device is None else {**setting.fit, "device": device}
    data, length = few(setting.data, images), epochs or setting.epochs
    share = share_of(length, setting.epochs, len(data.train[0]), len(setting.data.train[0]))
    return dataclasses.replace(setting, title=title, data=data, epochs=length, fit=fit, share=share)


def first(pair: tuple[torch.Tensor, torch.Tensor], count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The first ``count`` samples."""
    return pair[0][:count], pair[1][:count]


def fewer(data: Splits, train: int, test: int) -> Splits:
    """The first samples of each part."""
    return Splits(first(data.train, train), first(data.valid, test), first(data.test, test), data.kind)


def trial(setting: Setting, name: str, arm: Arm, seed: int) -> Row:
    """One run: its zeros, layer by layer, and its accuracy."""
    data = setting.data.train, None, setting.data.test
    result = Setup(setting.make, data, {"epochs": setting.epochs, **setting.fit}).run(arm, seed)
    weights = prunable_weights(Task(result.model), setting.where)
    layers = {n.removeprefix("model."): round(float((w == 0).double().mean()), 4) for n, w in weights.items()}
    return {
        "method": name, "seed": seed, "sparsity": round(sparsity(weights), 4),
        "accuracy": round(result.scores["test"].metric, 4), "layers": layers,
        "seconds": round(result.seconds, 1),
    }  # fmt: skip


def tried(setting: Setting, name: str, arm: Arm, seed: int, cells: Cells) -> Row:
    """A trial, or what is written down of it."""
    return cells.get(key_of(setting, name, seed), partial(trial, setting, name, arm, seed))


def key_of(setting: Setting, name: str, seed: int) -> str:
    """The name of a trial in a journal."""
    return f"{setting.title}, {setting.epochs:g} epochs, {name}, seed {seed}"


def side_by_side(setting: Setting, arms: Mapping[str, Arm], seeds: int, record: Path) -> list[Row]:
    """Every arm on every seed beside the dense network; finished runs are read from the record."""
    every = {"dense": Arm(), **arms}
    return Cells(record).all(
        {
            key_of(setting, name, seed): partial(trial, setting, name, arm, seed)
            for seed in range(seeds)
            for name, arm in every.items()
        }
    )


def of(rows: Iterable[Row], method: str, key: str) -> list[float]:
    """One number of a method's runs."""
    return [row[key] for row in rows if row["method"] == method]


def means(rows: Sequence[Row]) -> list[Row]:
    """A row per method: sparsity and accuracy, mean and deviation over seeds."""
    return [
        {key: spread(of(rows, name, key)) if key != "method" else name for key in COLUMNS}
        for name in dict.fromkeys(row["method"] for row in rows)
    ]


COLUMNS = ("method", "sparsity", "accuracy", "seconds")


def curve(name: str, rows: Sequence[Row]) -> Row:
    """Accuracy over sparsity through some rows of means."""
    ordered = sorted(rows, key=lambda row: row["sparsity"]["mean"])
    y, sd = ([row["accuracy"][key] for row in ordered] for key in ("mean", "sd"))
    band = {
        "low": [a - b for a, b in zip(y, sd, strict=True)],
        "high": [a + b for a, b in zip(y, sd, strict=True)],
    }
    return {"name": name, "x": [row["sparsity"]["mean"] for row in ordered], "y": y, "band": band}


def families(table: Sequence[Row]) -> list[Row]:
    """A curve per family of methods: what stands before the comma in their names."""
    names = dict.fromkeys(row["method"].partition(",")[0] for row in table)
    return [curve(name, [r for r in table if r["method"].partition(",")[0] == name]) for name in names]


def as_record(
    title: str, figures: str, setting: Setting, stand_in: bool, trials: Sequence[Row], **more: Any
) -> Row:
    """The result as the page of a reproduction takes it; ``trials`` keep every run."""
    table = means(trials)
    scale = f"{setting.title}, {setting.epochs:g} epochs"
    return {
        "title": f"{title}: {setting.title}", "source": f"{SOURCE}, {figures}", "scale": scale,
        "stand_in": stand_in,
        "seeds": sorted({row["seed"] for row in trials}), "machine": machine(),
        "columns": list(COLUMNS), "rows": table, "curves": families(table),
        "x_label": "sparsity", "y_label": "test accuracy", "trials": list(trials),
    } | more  # fmt: skip
