"""One-shot pruning: accuracy against sparsity, methods side by side (thesis Figures 4.1–4.2, Table 4.1)."""

import statistics
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from papers.common.arms import Row
from papers.common.cells import Cells
from papers.savarese_thesis.pruning_runs import Setting, Way, digits, fewer, resnet20, sgd, told, tried
from torchlift.data import load
from torchlift.lifts import HardConcrete, Slim, SoftThreshold
from torchlift.models import LeNet5
from torchlift.recipes import (
    ContinuousSparsification,
    IterativeMagnitude,
    IterativeStochastic,
    MagnitudePruning,
)
from torchlift.recipes.one_lift import LiftThenTune
from torchlift.train.settings import cosine

PAPER = {"ℓ₀": 0.136, "MP": 0.80, "GMP": 0.86, "slimming": 0.85, "CS": 0.944}  # Table 4.1, ResNet-20
LEVELS = (0.8, 0.9, 0.95, 0.98, 0.985, 0.9875, 0.99, 0.9925, 0.995)
MIDDLE = 3
HARD = (1e-4, 3e-4, 8e-4, 1.5e-3, 2e-3, 2.5e-3, 3e-3, 4e-3, 6e-3)  # the strength of ℓ₀ at each level
DECAY = (2e-3, 4e-3, 1e-2, 2e-2, 2.4e-2, 2.8e-2, 3.2e-2, 4e-2, 5e-2)  # of STR's thresholds
MARGIN = 0.02
RATES = {"CS": 0.02}  # 0.05 for all others; both were tried for CS, GMP, IMP-C and ℓ₀


def methods(level: float, where: str = "*weight") -> dict[str, Any]:
    """Every method at one level; those without a target have a knob that turns with it."""
    rank = LEVELS.index(level)
    prune = partial(MagnitudePruning, level, where, schedule=cosine)
    imp = partial(IterativeMagnitude, 3, 1 - (1 - level) ** (1 / 3), where=where)
    decay = {"*.s": {"weight_decay": DECAY[rank]}, "*": {}}
    return {
        "CS": ContinuousSparsification(sparsity=level, where=where),
        "MP": prune(),
        "MP per layer": prune(scope="local"),
        "GMP": prune(steps=8, share=0.8),
        "IMP": imp(rewind=0),
        "IMP-C": imp(),
        "ISS": IterativeStochastic(rounds=(2, 3, 4, 5, 7, 9, 11, 13, 15)[rank], where=where),
        "slimming": LiftThenTune(Slim(where, level, strength=1e-3)),
        "ℓ₀": LiftThenTune(HardConcrete(where, HARD[rank]), groups=faster(300.0)),
        "STR": LiftThenTune(SoftThreshold(where, s_init=-6.0), groups=decay),
    }


def faster(factor: float) -> dict[str, dict[str, float]]:
    """Logits at a multiple of the weights' rate."""
    return {"*.logit": {"lr_factor": factor}, "*": {}}


def setting(scale: float, data: str | Path | None) -> Setting:
    """ResNet-20 on CIFAR-10 for 200 epochs in full; LeNet-5 on part of MNIST, or a perceptron on digits."""
    how = sgd(0.05, schedule="cosine")
    if scale >= 1:
        return resnet20(200.0, data, **how)
    if scale < 0.05:
        return digits(60.0, **how)
    few = max(1000, round(80_000 * scale))
    title = f"LeNet-5, {few} images of MNIST"
    return Setting(title, partial(LeNet5, (1, 28, 28)), fewer(load("mnist", data), few, 10_000), 8.0, how)


def run(
    out: Path = Path("runs/reproduce"), data: str | None = None, seeds: int = 3, scale: float = 0.02
) -> Row:
    """Each method on each seed, as far as it stays near dense, with one schedule and equal epochs."""
    place = setting(scale, data)
    cells = Cells(out / "one-shot-pruning.jsonl")
    trials = [row for seed in range(seeds) for row in walks(place, seed, cells)]
    best = {name: sparsest(trials, name) for name in methods(LEVELS[0])}
    return told(
        "One-shot pruning", "Figures 4.1–4.2, Table 4.1", place, scale, trials,
        finding=finding(best), sparsest_within_2_points=best, paper=PAPER,
        notes=[
            "Each method starts at 98 %: up to the first level more than two points below dense, or down.",
            "Equal epochs for all, rounds and fine-tuning included; the thesis trains 200 epochs.",
            "Sparsest: per seed the highest sparsity within two points of that seed's dense accuracy.",
        ],
    )  # fmt: skip


def walks(place: Setting, seed: int, cells: Cells) -> list[Row]:
    """The dense network; then every method, from the middle level up while it stays near dense, or down."""
    rows = [tried(place, "dense", Way(), seed, cells)]
    least = rows[0]["accuracy"] - MARGIN

    def fine(name: str, level: float) -> bool:
        way = Way(methods(level, place.where)[name], fit=sgd(RATES.get(name, 0.05)))
        rows.append(tried(place, f"{name}, {level}", way, seed, cells))
        return rows[-1]["accuracy"] >= least

    for name in methods(LEVELS[0]):
        up = fine(name, LEVELS[MIDDLE])
        for level in LEVELS[MIDDLE + 1 :] if up else reversed(LEVELS[:MIDDLE]):
            if fine(name, level) != up:
                break
    return rows


def sparsest(rows: Iterable[Row], family: str) -> Row:
    """Per seed the highest sparsity within two points of that seed's dense accuracy (0 if none)."""
    dense = {row["seed"]: row["accuracy"] for row in rows if row["method"] == "dense"}
    own = [row for row in rows if row["method"].partition(",")[0] == family]
    near = {
        s: [r["sparsity"] for r in own if r["seed"] == s and r["accuracy"] >= a - MARGIN]
        for s, a in dense.items()
    }
    found = [max(values, default=0.0) for values in near.values()]
    return {"per_seed": found, "mean": round(statistics.fmean(found), 4)}


def finding(best: dict[str, Row]) -> str:
    """The result in a sentence."""
    ranked = sorted(best.items(), key=lambda item: -item[1]["mean"])
    listed = ", ".join(f"{name} {100 * one['mean']:.1f} %" for name, one in ranked)
    return f"Sparsest within 2 points of dense: {listed}."
