"""Supermasks on frozen random weights: continuous against stochastic gates (thesis Figures 4.9–4.10)."""

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path

from torch import nn

from papers.common.arms import Row
from papers.common.protocol import protocol
from papers.savarese_thesis.pruning_runs import (
    Setting,
    as_record,
    digits,
    means,
    sgd,
    side_by_side,
    sized,
    whole,
)
from torchlift import Arm
from torchlift.lifts import SoftMask, StochasticMask
from torchlift.models import Conv6

STARTS = {"CS": (-0.05, 0.0, 0.05), "SS": (-1.0, 0.0, 1.0)}
PUBLISHED = protocol("savarese_thesis", "Figures 4.9 and 4.10")


def masks(stand_in: bool) -> dict[str, Arm]:
    """Both kinds with several starts, beside trained weights; SS by SGD (gates at 100), others by Adam."""
    fits = {"CS": {}, "SS": {}, "dense": sgd(0.05, 0.0)}
    if not stand_in:
        fits = {arm: PUBLISHED.settings(arm) for arm in PUBLISHED.arms}
        fits["dense"] = fits["CS"]
    soft = {f"CS, s_init {s}": Arm(SoftMask(frozen=True, s_init=s), **fits["CS"]) for s in STARTS["CS"]}
    drawn = {
        f"SS, s_init {s}": Arm(StochasticMask(frozen=True, s_init=s), **fits["SS"]) for s in STARTS["SS"]
    }
    return {"dense": Arm(**fits["dense"]), **soft, **drawn}


def setting(stand_in: bool, data: str | None) -> Setting:
    """Conv-6 on CIFAR-10 for 100 epochs; the stand-in: a perceptron on digits for 40."""
    if stand_in:
        return digits(40.0, **sgd(0.5, 0.0))
    return Setting("Conv-6, CIFAR-10", Conv6, whole("cifar10", data), 100.0, {"progress": False})


def without_biases(make: Callable[[], nn.Module]) -> nn.Module:
    """A network of which nothing but weights would train, and those are frozen by the mask."""
    model = make()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith("weight"))
    return model


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
    stand_in: bool = False,
) -> Row:
    """Learn each mask with the weights (and biases) left at their random start."""
    training = sized(setting(stand_in, data), epochs, images, device)
    training = dataclasses.replace(training, make=partial(without_biases, training.make))
    trials = side_by_side(training, masks(stand_in), seeds or 3, out / "supermasks.jsonl")
    listed = ", ".join(
        f"{row['method']}: {row['accuracy']['mean']:.3f} at {100 * row['sparsity']['mean']:.0f} %"
        for row in means(trials)
    )
    return as_record(
        "Supermasks", "section 4.5.3, Figures 4.9–4.10", training, stand_in, trials,
        finding=f"Accuracy at sparsity, random weights: {listed}.",
        notes=["Dense: the same network with its weights trained and its biases left."],
    )  # fmt: skip
