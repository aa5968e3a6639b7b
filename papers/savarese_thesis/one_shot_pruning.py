"""One-shot pruning of ResNet-20 and VGG-16 on CIFAR-10 (thesis Table 4.1, Figures 4.1 and 4.2)."""

import dataclasses
import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from papers.common.arms import Row, selected_arms, without_arms
from papers.common.cells import Cells
from papers.common.protocol import Drops, protocol, thinned
from papers.savarese_thesis.fair_table import METHODS, Case, table
from papers.savarese_thesis.pruning_runs import (
    Setting,
    as_record,
    fewer,
    of,
    resnet20,
    side_by_side,
    sized,
)
from torchlift import Arm
from torchlift.data import load
from torchlift.lifts import Slim
from torchlift.methods.lift_then_tune import LiftThenTune
from torchlift.models import VGG16, LeNet5
from torchlift.recipes import ContinuousSparsification, MagnitudePruning

PUBLISHED = protocol("savarese_thesis", "Table 4.1")
PAPER = {"ℓ₀": 0.136, "MP": 0.80, "GMP": 0.86, "slimming": 0.85, "CS": 0.944}  # Table 4.1, ResNet-20
LEVELS = (0.8, 0.86, 0.9, 0.944, 0.975, 0.99)
STARTS = (-0.3, -0.2, -0.1, -0.05, 0.0, 0.05)
CLOSE = 0.02
"""How much of the dense network's accuracy may go."""


def ways(setting: Setting) -> dict[str, Arm]:
    """CS from several s_init; magnitude pruning at once, in stages, and slimming, at several sparsities.

    The subnetwork stands after 160 of 200 epochs and is trained on at 0.001.
    """
    where = setting.where
    searched = Drops((0.5, 0.75), 0.1)  # at epochs 80 and 120 of 160; then 0.001 for 40
    drops = PUBLISHED.settings("SGD")["schedule"]
    arms = {
        f"CS, s_init {start:g}": Arm(
            ContinuousSparsification(s_init=start, where=where, finetune=0.2, finetune_rate=0.01),
            schedule=searched,
        )
        for start in thinned(STARTS, setting.share)
    }
    for level in thinned(LEVELS, setting.share):
        cut = partial(MagnitudePruning, level, where, share=0.8, schedule=drops)
        arms[f"MP, {level:g}"] = Arm(cut())
        arms[f"GMP, {level:g}"] = Arm(cut(steps=8))
        arms[f"slimming, {level:g}"] = Arm(LiftThenTune(Slim(where, level, strength=1e-5)))
    return arms


def sparsest(rows: Sequence[Row]) -> dict[str, float]:
    """Of each kind, the largest mean sparsity in % within two points of the dense network."""
    dense = statistics.fmean(of(rows, "dense", "accuracy"))
    best: dict[str, float] = {}
    for name in dict.fromkeys(row["method"] for row in rows if row["method"] != "dense"):
        if statistics.fmean(of(rows, name, "accuracy")) >= dense - CLOSE:
            kind, zeros = name.partition(",")[0], 100 * statistics.fmean(of(rows, name, "sparsity"))
            best[kind] = max(best.get(kind, 0.0), zeros)
    return best


def small_case(data: str | None) -> Case:
    """The stand-in: LeNet-5 on some of MNIST."""
    digits = fewer(load("mnist", data), 9000, 3000)
    setting = Setting("LeNet-5, 9000 images of MNIST", partial(LeNet5, (1, 28, 28)), digits, 5.0, {})
    return Case(setting, (0.95,), tuple(METHODS))


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
    stand_in: bool = False,
    arms: str | None = None,
) -> Row:
    """Both networks with every method at every sparsity; the stand-in tunes each with six trials."""
    numbers = seeds or 3
    if stand_in:
        if arms is not None:
            raise ValueError("--arms takes some of the paper's arms, --stand-in none of them: pass one")
        case = small_case(data)
        case = dataclasses.replace(case, setting=sized(case.setting, epochs, images, device))
        cells = Cells(out / "one-shot-pruning.jsonl")
        return table(
            "One-shot pruning", "Figures 4.1–4.2, Table 4.1", case, stand_in, numbers, cells, paper=PAPER
        )
    setting = resnet20(data, PUBLISHED, "SGD")
    vgg = dataclasses.replace(setting, title="VGG-16, CIFAR-10", make=VGG16)
    networks = {
        name: sized(one, epochs, images, device)
        for name, one in {"ResNet-20": setting, "VGG-16": vgg}.items()
    }
    every = [f"{name}: {arm}" for name, one in networks.items() for arm in ways(one)]
    kept = selected_arms(every, arms)
    rows: list[Row] = []
    left: dict[str, float] = {}
    for name, one in networks.items():
        chosen = {arm: recipe for arm, recipe in ways(one).items() if f"{name}: {arm}" in kept}
        if not chosen:
            continue
        trials = side_by_side(one, chosen, numbers, out / "one-shot-published.jsonl")
        left |= {f"sparsest, {name}, {kind}": zeros for kind, zeros in sparsest(trials).items()}
        rows += [row | {"method": f"{name}: {row['method']}"} for row in trials]
    listed = ", ".join(f"{key.removeprefix('sparsest, ')} {zeros:.1f} %" for key, zeros in left.items())
    return as_record(
        "One-shot pruning", "Figures 4.1–4.2, Table 4.1", networks["ResNet-20"], stand_in, rows,
        finding=f"Most zeros within two points of the dense network: {listed or 'none'}.", **left,
        **without_arms(every, kept),
    )  # fmt: skip
