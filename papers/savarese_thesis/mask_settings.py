"""How λ, β_final and s_init move sparsity and accuracy (thesis Figures 4.5–4.7)."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from papers.common.arms import Row
from papers.common.protocol import thinned
from papers.savarese_thesis.pruning_runs import (
    Setting,
    as_record,
    digits,
    means,
    resnet20,
    sgd,
    side_by_side,
    sized,
)
from torchlift import Arm
from torchlift.recipes import ContinuousSparsification, TicketSearch

BASE = ContinuousSparsification(s_init=-0.05, finetune=0.1, finetune_rate=0.1)
SWEEPS: dict[str, tuple[float, ...]] = {
    "strength": (0.0, 1e-10, 1e-8, 1e-4),
    "beta_final": (50.0, 100.0, 200.0),
    "s_init": (-0.2, -0.1, -0.05, 0.0, 0.05),
}


AROUND: dict[str, tuple[tuple[float, ...], list[dict[str, float]]]] = {
    "strength": (
        (0.0, 1e-12, 1e-10, 1e-8),
        [
            {"s_init": -0.2, "beta_final": 100.0},
            {"s_init": 0.05, "beta_final": 200.0},
            {"s_init": -0.3, "beta_final": 100.0},
        ],
    ),
    "beta_final": (
        (50.0, 100.0, 150.0, 200.0),
        [
            {"s_init": -0.2, "strength": 1e-10},
            {"s_init": 0.05, "strength": 1e-12},
            {"s_init": -0.3, "strength": 1e-8},
        ],
    ),
    "s_init": (
        (-0.3, -0.2, -0.1, 0.0, 0.05, 0.1, 0.2, 0.3),
        [
            {"beta_final": 100.0, "strength": 1e-10},
            {"beta_final": 200.0, "strength": 1e-12},
            {"beta_final": 100.0, "strength": 1e-8},
        ],
    ),
}
"""What the thesis varies (λ, β_final, s_init), and the three settings around which it does."""


def as_published(training: Setting) -> dict[str, Arm]:
    """Tickets of one round, trained from the weights of epoch 2."""
    return {
        f"{name}, {value:g}{described(fixed)}": training.arm(
            TicketSearch(1, training.rewind, where=training.where, **{name: value, **fixed}),  # pyright: ignore[reportArgumentType]
            2,
        )
        for name, (values, settings) in AROUND.items()
        for fixed in thinned(settings, training.share)
        for value in thinned(values, training.share)
    }


def described(fixed: Mapping[str, float]) -> str:
    """What stays the same, in words."""
    return "".join(f", {name} {value:g}" for name, value in fixed.items())


def setting(stand_in: bool, data: str | None) -> Setting:
    """ResNet-20 on CIFAR-10 for 85 epochs; the stand-in: a perceptron on digits for 30."""
    return digits(30.0, **sgd(0.1, 0.0)) if stand_in else resnet20(data)


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
    stand_in: bool = False,
) -> Row:
    """One setting varied at a time around three; the stand-in: around s_init = −0.05, without a target."""
    training = sized(setting(stand_in, data), epochs, images, device)
    base = dataclasses.replace(BASE, where=training.where)
    small = {
        f"{name}, {value:g}": Arm(dataclasses.replace(base, **{name: value}))  # pyright: ignore[reportArgumentType]
        for name, values in SWEEPS.items()
        for value in values
    }
    ways = small if stand_in else as_published(training)
    trials = side_by_side(training, ways, seeds or 3, out / "mask-settings.jsonl")
    return as_record(
        "Settings of continuous sparsification", "section 4.5.1, Figures 4.5–4.7", training, stand_in, trials,
        finding=finding(means(trials)),
    )  # fmt: skip


def finding(table: Sequence[Row]) -> str:
    """How far each setting moves the sparsity."""
    spans: list[str] = []
    for name in SWEEPS:
        zeros = [row["sparsity"]["mean"] for row in table if row["method"].startswith(f"{name},")]
        spans.append(f"{name} {100 * min(zeros):.0f}–{100 * max(zeros):.0f} %")
    return f"Sparsity over each sweep: {', '.join(spans)}."
