"""Supermasks on frozen random weights: continuous against stochastic gates (thesis Figures 4.9–4.10)."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.optim import SGD

import torchlift as tl
from torchlift.core import Lift, Task
from torchlift.data import load
from torchlift.lifts import SoftMask, StochasticMask
from torchlift.models import MLP, Conv6
from torchlift.recipes.pruning import sparsity, weights


def masks() -> dict[str, Lift]:
    """Both kinds with several starts."""
    soft = {f"CS, s_init {s}": SoftMask(frozen=True, s_init=s) for s in (-0.05, 0.0, 0.05)}
    drawn = {f"SS, s_init {s}": StochasticMask(frozen=True, s_init=s) for s in (-1.0, 0.0, 1.0)}
    return {**soft, **drawn}


def run(
    out: Path = Path("runs/reproduce"), data: str | None = None, seeds: int = 1, scale: float = 0.02
) -> dict[str, Any]:
    """Learn each mask with the weights (and biases) left at their random start."""
    del out
    whole = scale >= 1
    splits = load("cifar10", data) if whole else load("digits")
    rows: list[dict[str, Any]] = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        model = Conv6() if whole else MLP(64, 300, 100, 10)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name.endswith("weight"))
        for name, mask in masks().items():
            result = tl.fit(
                model, splits.train, test=splits.test, recipe=mask, epochs=100 if whole else 40, seed=seed,
                optimizer=partial(SGD, lr=0.5, momentum=0.9), batch_size=64, progress=False,
            )  # fmt: skip
            found = weights(Task(result.model), "*weight")
            accuracy = result.scores["test"].metric
            rows.append({"method": name, "seed": seed, "sparsity": sparsity(found), "accuracy": accuracy})
    title = "Conv-6, CIFAR-10" if whole else "64-300-100-10 on scikit-learn's digits"
    told = ", ".join(f"{r['method']}: {r['accuracy']:.3f} at {100 * r['sparsity']:.0f} %" for r in rows)
    return {
        "title": f"Supermasks: {title}", "finding": f"Accuracy at sparsity, random weights: {told}.",
        "scale": scale, "seeds": seeds, "torch": torch.__version__, "rows": rows,
    }  # fmt: skip
