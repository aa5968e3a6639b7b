"""Rates of convergence: Adam, delayed Adam and AvaGrad against the thesis' bounds 6.9 to 6.12."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from papers.common.arms import Row, machine, spread
from torchlift.experiments.executors import run_all
from torchlift.optim import AdamEps, AvaGrad, DelayedAdam

DIMENSIONS, NOISE, EPS, BETA = 20, 1.0, 0.1, 0.99
LENGTHS = (500, 2_000, 8_000)
CURVATURES = torch.logspace(-1, 0, DIMENSIONS, dtype=torch.float64)


def delayed(w: list[Tensor], steps: int) -> Optimizer:
    """Delayed Adam with α = ε / √T: η lies between 1 / (G + ε) and 1 / ε."""
    return DelayedAdam(w, lr=EPS / math.sqrt(steps), betas=(0.0, BETA), eps=EPS)


def avagrad(w: list[Tensor], steps: int) -> Optimizer:
    """AvaGrad with α = 1 / √T: η is normalized at every step."""
    return AvaGrad(w, lr=1 / math.sqrt(steps), betas=(0.0, BETA), eps=EPS)


def growing(w: list[Tensor], steps: int) -> Optimizer:
    """Adam with ε_t = ε √t and α_t = ε_t / √T (Corollary 6.1)."""
    return AdamEps(w, lr=1 / math.sqrt(steps), betas=(0.0, BETA), eps=EPS, power=0.5)


METHODS: dict[str, Callable[[list[Tensor], int], Optimizer]] = {
    "delayed Adam": delayed,
    "AvaGrad": avagrad,
    "Adam with growing ε": growing,
}
DELAYED = ("delayed Adam", "AvaGrad")
"""Their step is known before the sample is."""


def descended(name: str, steps: int, seed: int) -> dict[str, float]:
    """A run on a noisy quadratic: the mean of ‖∇f‖², and both sides of (6.53) and (6.83), with β₁ = 0.

    Σ min σ′ₜ ‖∇f‖² ≤ f(w₁) − f* + ½ L Σ ‖g ⊙ σₜ‖² + Σ |⟨∇f, g ⊙ (σₜ − σ′ₜ)⟩| in expectation: σₜ the step in
    units of the gradient, σ′ₜ one that does not depend on the sample (the same where η is delayed, else
    that of the step before). From these lines 6.9 to 6.12 follow; L = 1 and f* = 0 here.
    """
    generator = torch.Generator().manual_seed(seed)
    w = torch.ones(DIMENSIONS, dtype=torch.float64)
    optimizer, squares, before = METHODS[name]([w], steps), 0.0, torch.zeros_like(w)
    left, right = 0.0, 0.5 * float(CURVATURES.sum())
    for _ in range(steps):
        slope, old = CURVATURES * w, w.clone()
        w.grad = g = slope + NOISE * torch.randn(DIMENSIONS, generator=generator, dtype=torch.float64)
        optimizer.step()
        step = (old - w) / g
        predicted = step if name in DELAYED else before
        squares += float(slope.square().sum())
        left += float(predicted.min()) * float(slope.square().sum())
        right += 0.5 * float((old - w).square().sum()) + abs(float(slope @ (g * (step - predicted))))
        before = step
    return {"measured": squares / steps, "left": left, "right": right}


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
) -> Row:
    """Runs of growing length; ``epochs`` are the steps of the longest."""
    del out, data, images
    longest = max(160, round(epochs or LENGTHS[-1]))
    lengths = [max(10, longest * length // LENGTHS[-1]) for length in LENGTHS]
    numbers = range(seeds or 3)
    rows: list[dict[str, Any]] = []
    curves: list[Row] = []
    for name in METHODS:
        runs = {steps: run_all(partial(descended, name, steps), numbers) for steps in lengths}
        means = [spread([one["measured"] for one in runs[steps]])["mean"] for steps in lengths]
        over = {steps: [one["left"] / one["right"] for one in runs[steps]] for steps in lengths}
        rows.append(
            {
                "method": name,
                "mean ‖∇f‖², by length": means,
                "measured over bound, by length": [spread(over[steps])["mean"] for steps in lengths],
                "measured over bound": max(max(some) for some in over.values()),
                "falls like T to the": math.log(means[-1] / means[0]) / math.log(lengths[-1] / lengths[0]),
            }
        )
        curves.append({"name": name, "x": lengths, "y": means})
    slopes = ", ".join(f"{row['method']} {row['falls like T to the']:.2f}" for row in rows)
    return {
        "title": "Rates of convergence against the bounds 6.9 to 6.12",
        "source": "Savarese, Principled Approximation Methods, section 6.2, eqs. 6.9–6.12",
        "finding": f"the mean squared gradient falls like T to the {slopes} (the bounds say −0.5); "
        "of what they allow, with their constants, at most "
        + ", ".join(f"{row['measured over bound']:.2f}" for row in rows)
        + " is used",
        "scale": f"a noisy quadratic of {DIMENSIONS} variables, {lengths} steps",
        "seeds": list(numbers),
        "machine": machine(),
        "columns": list(rows[0]),
        "rows": rows,
        "curves": curves,
        "x_label": "steps",
        "y_label": "mean of ‖∇f‖²",
        "notes": [
            "The thesis' bounds are up to constants; held against the runs is the line of their proofs that "
            "has them, (6.53) and (6.83), with the samples that were drawn.",
            "On eq. 6.13 itself see `reproduce delayed-adam`.",
        ],
    }
