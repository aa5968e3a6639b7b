"""How λ, β_final and s_init move sparsity and accuracy (thesis Figures 4.5–4.7)."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from papers.common.arms import Row
from papers.savarese_thesis.pruning_runs import Setting, Way, digits, means, resnet20, sgd, side_by_side, told
from torchlift.recipes import ContinuousSparsification

BASE = ContinuousSparsification(s_init=-0.05, finetune=0.1, finetune_rate=0.1)
SWEEPS: dict[str, tuple[float, ...]] = {
    "strength": (0.0, 1e-10, 1e-8, 1e-4),
    "beta_final": (50.0, 100.0, 200.0),
    "s_init": (-0.2, -0.1, -0.05, 0.0, 0.05),
}


def setting(scale: float, data: str | None) -> Setting:
    """ResNet-20 on CIFAR-10 for 85 epochs, or a perceptron on digits for 30."""
    if scale >= 1:
        return resnet20(85.0, data, **sgd(0.1, batch=128))
    return digits(30.0, **sgd(0.1, 0.0))


def run(
    out: Path = Path("runs/reproduce"), data: str | None = None, seeds: int = 3, scale: float = 0.02
) -> Row:
    """One setting varied at a time around s_init = −0.05, β_final = 200, λ = 1e-8, without a target."""
    place = setting(scale, data)
    base = dataclasses.replace(BASE, where=place.where)
    ways = {
        f"{name}, {value:g}": Way(dataclasses.replace(base, **{name: value}))  # pyright: ignore[reportArgumentType]
        for name, values in SWEEPS.items()
        for value in values
    }
    trials = side_by_side(place, ways, seeds, out / "mask-settings.jsonl")
    return told(
        "Settings of continuous sparsification", "section 4.5.1, Figures 4.5–4.7", place, scale, trials,
        finding=finding(means(trials)),
    )  # fmt: skip


def finding(table: Sequence[Row]) -> str:
    """How far each setting moves the sparsity."""
    spans: list[str] = []
    for name in SWEEPS:
        found = [row["sparsity"]["mean"] for row in table if row["method"].startswith(f"{name},")]
        spans.append(f"{name} {100 * min(found):.0f}–{100 * max(found):.0f} %")
    return f"Sparsity over each sweep: {', '.join(spans)}."
