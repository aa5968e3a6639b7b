"""One-shot pruning: accuracy against sparsity, methods side by side (thesis Figures 4.1–4.2, Table 4.1)."""

import statistics
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import SGD

import torchlift as tl
from torchlift.core import Task
from torchlift.data import Splits, load
from torchlift.lifts import HardConcrete, Slim, SoftThreshold
from torchlift.models import MLP, LeNet5, resnet
from torchlift.recipes import ContinuousSparsification, MagnitudePruning
from torchlift.recipes.lifted import Lifted
from torchlift.recipes.pruning import sparsity, weights
from torchlift.train.settings import cosine

PAPER = {"ℓ₀": 0.136, "MP": 0.80, "GMP": 0.86, "slimming": 0.85, "CS": 0.944}  # Table 4.1, ResNet-20
LEVELS = (0.95, 0.97, 0.98, 0.985, 0.99)
MARGIN = 0.02


def methods(level: float) -> dict[str, Any]:
    """Every method at one level; those without a target have a strength of their own per level."""
    rank = LEVELS.index(level)
    prune = partial(MagnitudePruning, level, schedule=cosine)
    return {
        "CS": ContinuousSparsification(sparsity=level),
        "MP": prune(),
        "MP, per layer": prune(scope="local"),
        "GMP": prune(steps=8, share=0.8),
        "slimming": Lifted(Slim(sparsity=level, strength=1e-5)),
        "ℓ₀": Lifted(
            HardConcrete(strength=(7e-4, 1e-3, 1.5e-3, 2e-3, 3e-3)[rank]),
            groups={"*.logit": {"lr_factor": 300.0}, "*": {}},
        ),
        "STR": Lifted(
            SoftThreshold(s_init=-6.0),
            groups={"*.s": {"weight_decay": (4e-3, 8e-3, 1.6e-2, 2.4e-2, 3.2e-2)[rank]}, "*": {}},
        ),
    }


def setting(scale: float, data: str | Path | None) -> tuple[str, Any, Splits, float]:
    """The network, the data and the epochs: ResNet-20 on CIFAR-10 in full; below, two for a laptop."""
    if scale >= 1:
        return "ResNet-20, CIFAR-10", partial(resnet, 20), load("cifar10", data), 200.0
    if scale < 0.05:
        return "64-300-100-10 on scikit-learn's digits", partial(MLP, 64, 300, 100, 10), load("digits"), 60.0
    found = load("mnist", data)
    few = max(1000, round(80_000 * scale))
    small = Splits(
        (found.train[0][:few], found.train[1][:few]), first(found.valid, 2000), found.test, found.kind
    )
    return f"LeNet-5, {few} images of MNIST", partial(LeNet5, (1, 28, 28)), small, 8.0


def first(pair: Any, count: int) -> Any:
    """The first samples of a pair."""
    return None if pair is None else (pair[0][:count], pair[1][:count])


def run(
    out: Path = Path("runs/reproduce"), data: str | None = None, seeds: int = 3, scale: float = 0.02
) -> dict[str, Any]:
    """Each method at each level on each seed, with one schedule and equal epochs."""
    del out
    title, make, splits, epochs = setting(scale, data)
    rows: list[dict[str, Any]] = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        model = make()
        rows.append(trial("dense", None, model, splits, epochs, seed, 0.0))
        for level in LEVELS:
            rows += [trial(n, r, model, splits, epochs, seed, level) for n, r in methods(level).items()]
    best = {name: sparsest(rows, name) for name in methods(LEVELS[0])}
    return {
        "title": f"One-shot pruning: {title}",
        "finding": finding(best),
        "scale": scale, "seeds": seeds, "epochs": epochs, "torch": torch.__version__,
        "note": "The thesis: 200 epochs, VGG-16 and ResNet-20, CIFAR-10. Below scale 1: other network, data.",
        "dense": [row["accuracy"] for row in rows if row["method"] == "dense"],
        "sparsest_within_2_points": best, "paper": PAPER, "rows": rows,
    }  # fmt: skip


def trial(
    name: str, recipe: Any, model: nn.Module, splits: Splits, epochs: float, seed: int, level: float
) -> dict[str, Any]:
    """One run."""
    result = tl.fit(
        model, splits.train, test=splits.test, recipe=recipe, epochs=epochs, seed=seed, progress=False,
        optimizer=partial(SGD, lr=0.05, momentum=0.9, weight_decay=1e-4), schedule="cosine", batch_size=64,
    )  # fmt: skip
    got = sparsity(weights(Task(result.model), "*weight"))
    accuracy = result.scores["test"].metric
    return {
        "method": name,
        "asked": level,
        "sparsity": round(got, 4),
        "accuracy": round(accuracy, 4),
        "seed": seed,
    }


def sparsest(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Per seed the highest sparsity within two points of that seed's dense accuracy (0 if none)."""
    dense = {row["seed"]: row["accuracy"] for row in rows if row["method"] == "dense"}
    found = [
        max(
            (
                r["sparsity"]
                for r in rows
                if r["method"] == name and r["seed"] == s and r["accuracy"] >= a - MARGIN
            ),
            default=0.0,
        )
        for s, a in dense.items()
    ]
    return {"per_seed": found, "mean": round(statistics.fmean(found), 4)}


def finding(best: dict[str, dict[str, Any]]) -> str:
    """The result in a sentence."""
    ranked = sorted(best.items(), key=lambda item: -item[1]["mean"])
    return (
        "Sparsest within 2 points of dense: "
        + ", ".join(f"{n} {100 * b['mean']:.1f} %" for n, b in ranked)
        + "."
    )
