"""Quantized runs side by side: one run of a setting, its bits, its file, and the record of all of them."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import torchlift as tl
from papers.common.arms import Row, machine, spread
from papers.common.cells import Cells
from papers.common.protocol import Protocol, protocol
from papers.savarese_thesis.pruning_runs import Setting, digits, fewer, sgd, sized, whole
from torchlift.core import Node, Stored, WeightLift
from torchlift.core.selection import matches
from torchlift.data import crop_flip, load
from torchlift.experiments.arm import Setup
from torchlift.methods.precision.activation_precision import GridActivation
from torchlift.methods.precision.keep_grid import OnGrid
from torchlift.models import LeNet5, resnet
from torchlift.recipes import Chain, Plain

__all__ = ["Setting", "digits", "fewer", "sgd", "sized", "whole"]

SOURCE = "Savarese, Principled Approximation Methods, chapter 5"
TUNING_SEED = 100
COLUMNS = ("method", "bits", "file bytes", "accuracy")


def lenet(images: int, epochs: float, folder: str | None) -> Setting:
    """LeNet-5 on some of CIFAR-10, crops and flips."""
    data = fewer(load("cifar10", folder), images, 10_000)
    data = dataclasses.replace(data, valid=(data.valid[0][:2000], data.valid[1][:2000]))  # looked at often
    fit = sgd(5e-2, 5e-4, 128, schedule="cosine", augment=crop_flip)
    title = f"LeNet-5, {images} images of CIFAR-10"
    return Setting(title, partial(LeNet5, init="xavier"), data, epochs, fit)


PUBLISHED = protocol("savarese_thesis", "Table 5.1")
WHERE = {"ResNet-20": "*[!0].weight"}
"""Its matrices but those of the shortcuts ("….shortcut.0.weight"): they stay in float, as in the source."""


def published(
    folder: str | None, make: Callable[[], nn.Module] | None = None, arm: str = "ResNet-20",
    protocol: Protocol = PUBLISHED,
) -> Setting:  # fmt: skip
    """The thesis' setting: all of CIFAR-10, SGD with three drops, 650 epochs."""
    fit = protocol.settings(arm) | {"progress": False}
    title, epochs = f"{arm}, CIFAR-10", protocol.length(arm, None)
    where = WHERE.get(arm, "*weight")
    return Setting(title, make or partial(resnet, 20), whole("cifar10", folder), epochs, fit, where)


def under_one_schedule(recipe: Any) -> Chain:
    """A recipe whose stages follow the run's schedule once, from its first epoch to its last."""
    return Chain({"bits": recipe}, restart=False)


def after_training(lift: Any, share: float) -> Chain:
    """Straight-through training from trained weights, as LSQ's authors do."""
    return Chain({"float": Plain(), "bits": lift}, shares={"float": 1 - share, "bits": share})


def bits_of(weight: Tensor, record: Stored | None = None) -> float:
    """Bits per entry: of its grid; else what its distinct values need, 32 where there are more than 2^16."""
    if record is not None and record.precision is not None:
        return float(record.precision.double().mean())
    values = weight.unique().numel()
    return math.ceil(math.log2(max(values, 2))) if values <= min(2**16, weight.numel() // 2) else 32.0


def weights_of(model: nn.Module, where: str = "*") -> dict[str, Tensor]:
    """What methods quantize: matrices and kernels."""
    return {name: p.detach() for name, p in model.named_parameters() if p.ndim > 1 and matches(name, where)}


@dataclasses.dataclass(frozen=True, eq=False)
class Bench:
    """A setting with a record of finished runs and a folder for those that are not."""

    setting: Setting
    cells: Cells
    out: Path

    @classmethod
    def at(cls, setting: Setting, out: Path, name: str) -> "Bench":
        """A record of its own for every scale."""
        folder = out / f"{name}-{setting.epochs:g}-{len(setting.data.train[0])}"
        return cls(setting, Cells(folder / "cells.jsonl"), folder)

    def model(self, name: str, arm: Any, seed: int) -> tl.Result:
        """One durable run at the cost of the setting's plain epochs, or of the arm's own."""
        setting = self.setting
        shared = {"epochs": setting.epochs, "equal_cost": True, **setting.fit}
        setup = Setup(setting.make, setting.data, shared)
        return setup.run(tl.Arm.of(arm), seed, self.folder(name, seed), resume=True)

    def folder(self, name: str, seed: int) -> Path:
        """The folder of a run."""
        return self.out / f"{name} {seed}".replace(" ", "_").replace(",", "")

    def measured(self, name: str, arm: Any, seed: int) -> Row:
        """The row of a run: bits, bytes of the file on disk, accuracy, bits by layer."""
        result = self.model(name, arm, seed)
        weights = weights_of(result.model, self.setting.where)
        records = result.stored
        layers = {layer: round(bits_of(weight, records.get(layer)), 3) for layer, weight in weights.items()}
        total = sum(weight.numel() for weight in weights.values())
        mean = sum(layers[layer] * weight.numel() for layer, weight in weights.items()) / total
        units = [
            module.bits.double() for module in result.model.modules() if isinstance(module, GridActivation)
        ]
        shown = {"activation bits": float(torch.cat([u.flatten() for u in units]).mean())} if units else {}
        return {
            "method": name, "seed": seed, "bits": round(mean, 4), **shown, "layers": layers,
            "file bytes": tl.deploy.save(result.model, self.out / f"{self.folder(name, seed).name}.tl"),
            "valid": round(result.scores["valid"].metric, 4),
            "accuracy": round(result.scores["test"].metric, 4), "cost": round(result.cost, 3),
        }  # fmt: skip

    def runs(self, ways: Mapping[str, Any], seeds: int) -> list[Row]:
        """Every way, an arm or a recipe, on every seed."""
        return self.cells.all(
            {
                f"{name}, seed {seed}": partial(self.measured, name, arm, seed)
                for seed in range(seeds)
                for name, arm in ways.items()
            }
        )

    def best(self, name: str, make: Callable[[Any], Any], trials: Sequence[Any]) -> Any:
        """The trial that is best on validation data (ties: the smaller file), on a seed not reported."""
        results = self.cells.all(
            {
                f"{tried}, seed {TUNING_SEED}": partial(self.measured, tried, make(trial), TUNING_SEED)
                for trial in trials
                for tried in [f"{name}, tuning {trial}"]
            }
        )
        rows = dict(zip(trials, results, strict=True))
        return max(rows, key=lambda trial: (rows[trial]["valid"], -rows[trial]["file bytes"]))


def means(rows: Iterable[Row], columns: Sequence[str] = COLUMNS, seedwise: str = "accuracy") -> list[Row]:
    """A row per method, mean and deviation over seeds; one number also seed by seed."""
    rows = list(rows)
    table: list[Row] = []
    for name in dict.fromkeys(row["method"] for row in rows):
        mine = [row for row in rows if row["method"] == name]
        numbers = {
            key: spread([row[key] for row in mine]) for key in columns if key in mine[0] and key != "method"
        }
        table.append(numbers | {"method": name, "per seed": [row[seedwise] for row in mine]})
    return table


def sizes(table: Iterable[Row]) -> dict[str, list[tuple[float, float, float]]]:
    """Accuracy against file size by family: what stands before the comma in a method's name."""
    families: dict[str, list[tuple[float, float, float]]] = {}
    for row in table:
        point = row["file bytes"]["mean"], row["accuracy"]["mean"], row["accuracy"]["sd"]
        families.setdefault(row["method"].partition(",")[0], []).append(point)
    return families


def as_record(
    title: str, figures: str, setting: Setting, full: bool, trials: Sequence[Row], **more: Any
) -> Row:
    """The result as the page of a reproduction takes it; ``trials`` keep every run."""
    scale = f"{setting.title}, {setting.epochs:g} epochs"
    return {
        "title": f"{title}: {setting.title}", "source": f"{SOURCE}, {figures}", "scale": scale,
        "stand_in": not full,
        "seeds": sorted({row["seed"] for row in trials}), "machine": machine(), "columns": list(COLUMNS),
        "y_label": "test accuracy", "trials": list(trials),
    } | ({} if "rows" in more else {"rows": means(trials)}) | more  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Fixed(WeightLift):
    """Weights trained straight through at fixed precisions."""

    grids: Mapping[str, tuple[Tensor, Tensor]]
    where: str = "*weight"

    def nodes(self, weights: Mapping[str, Tensor]) -> Mapping[str, Node]:
        """Each weight on its grid."""
        return {name: OnGrid(w, *self.grids[name.removeprefix("model.")]) for name, w in weights.items()}


def grids(model: nn.Module, shuffled: int | None) -> dict[str, tuple[Tensor, Tensor]]:
    """The precisions of a quantized model; with a seed, permuted within each layer."""
    precisions: dict[str, tuple[Tensor, Tensor]] = {}
    generator = torch.Generator().manual_seed(shuffled or 0)
    for name, record in tl.stored(model).items():
        bits, step = record.precision, record.step
        if bits is not None and step is not None:
            order = torch.randperm(bits.numel(), generator=generator)
            precisions[name] = (bits if shuffled is None else bits.flatten()[order].view_as(bits), step)
    return precisions
