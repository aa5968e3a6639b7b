"""How λ, β_final and s_init move sparsity and accuracy (thesis Figures 4.5–4.7)."""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.optim import SGD

import torchlift as tl
from torchlift.core import Task
from torchlift.data import load
from torchlift.models import MLP, resnet
from torchlift.recipes import ContinuousSparsification
from torchlift.recipes.pruning import sparsity, weights

BASE = ContinuousSparsification(s_init=-0.05, finetune=0.1)
SWEEPS: dict[str, tuple[float, ...]] = {
    "strength": (0.0, 1e-10, 1e-8, 1e-4),
    "beta_final": (50.0, 100.0, 200.0),
    "s_init": (-0.2, -0.1, -0.05, 0.0, 0.05),
}


def run(
    out: Path = Path("runs/reproduce"), data: str | None = None, seeds: int = 1, scale: float = 0.02
) -> dict[str, Any]:
    """One setting varied at a time around s_init = −0.05, β_final = 200, λ = 1e-8, without a target."""
    del out
    whole = scale >= 1
    splits = load("cifar10", data) if whole else load("digits")
    rows: list[dict[str, Any]] = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        model = resnet(20) if whole else MLP(64, 300, 100, 10)
        for name, values in SWEEPS.items():
            for value in values:
                recipe = dataclasses.replace(BASE, **{name: value})  # pyright: ignore[reportArgumentType]
                result = tl.fit(
                    model, splits.train, test=splits.test, recipe=recipe, epochs=85 if whole else 30,
                    optimizer=partial(SGD, lr=0.1, momentum=0.9), batch_size=64, seed=seed, progress=False,
                )  # fmt: skip
                got = sparsity(weights(Task(result.model), "*weight"))
                accuracy = result.scores["test"].metric
                rows.append(
                    {"varied": name, "value": value, "seed": seed, "sparsity": got, "accuracy": accuracy}
                )
    title = "ResNet-20, CIFAR-10" if whole else "64-300-100-10 on scikit-learn's digits"
    return {
        "title": f"Settings of continuous sparsification: {title}", "finding": finding(rows), "scale": scale,
        "seeds": seeds, "torch": torch.__version__, "rows": rows,
    }  # fmt: skip


def finding(rows: list[dict[str, Any]]) -> str:
    """How far each setting moves the sparsity."""
    spans: list[str] = []
    for name in SWEEPS:
        found = [row["sparsity"] for row in rows if row["varied"] == name]
        spans.append(f"{name} {100 * min(found):.0f}–{100 * max(found):.0f} %")
    return f"Sparsity over each sweep: {', '.join(spans)}."
