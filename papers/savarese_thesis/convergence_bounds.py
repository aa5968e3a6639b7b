"""Rates of convergence: delayed Adam and AvaGrad against the bounds 6.10 and 6.12 (thesis, section 6.2)."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from papers.common.arms import Row, machine, spread
from torchlift.optim import AvaGrad, DelayedAdam

DIMENSIONS, NOISE, EPS, BETA = 20, 1.0, 0.1, 0.99
LENGTHS = (500, 2_000, 8_000)
CURVATURES = torch.logspace(-1, 0, DIMENSIONS, dtype=torch.float64)


def delayed(w: list[Tensor], steps: int) -> Optimizer:
    """Delayed Adam with α = ε / √T: η lies between 1 / (G + ε) and 1 / ε."""
    return DelayedAdam(w, lr=EPS / math.sqrt(steps), betas=(0.0, BETA), eps=EPS)


def avagrad(w: list[Tensor], steps: int) -> Optimizer:
    """AvaGrad with α = 1 / √T: η is normalized at every step."""
    return AvaGrad(w, lr=1 / math.sqrt(steps), betas=(0.0, BETA), eps=EPS)


METHODS: dict[str, Callable[[list[Tensor], int], Optimizer]] = {"delayed Adam": delayed, "AvaGrad": avagrad}


def descended(make: Callable[[list[Tensor], int], Optimizer], steps: int, seed: int) -> dict[str, float]:
    """The mean of ‖∇f‖² over a run on a noisy quadratic, and of min η / ‖η‖, by which 6.12 is computed."""
    generator = torch.Generator().manual_seed(seed)
    w = torch.ones(DIMENSIONS, dtype=torch.float64)
    optimizer = make([w], steps)
    squares, ratios, second = 0.0, 0.0, torch.zeros_like(w)
    for _ in range(steps):
        slope = CURVATURES * w
        squares += float(slope.square().sum())
        eta = 1 / (second.sqrt() + EPS)
        ratios += float(eta.min() / eta.norm())
        w.grad = slope + NOISE * torch.randn(DIMENSIONS, generator=generator, dtype=torch.float64)
        optimizer.step()
        second = BETA * second + (1 - BETA) * w.grad.square()
    return {"measured": squares / steps, "bound 6.12": math.sqrt(steps) / ratios}


def bound_610(steps: int, largest: float) -> float:
    """Of 6.10 with α' = 1 / H: 2 H / (L √T), L = 1 / (G + ε), H = 1 / ε."""
    return 2 * (largest + EPS) / (EPS * math.sqrt(steps))


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
) -> Row:
    """Runs of growing length; ``epochs`` are the steps of the longest."""
    del out, data, images, device
    longest = max(160, round(epochs or LENGTHS[-1]))
    lengths = [max(10, longest * length // LENGTHS[-1]) for length in LENGTHS]
    numbers = range(seeds or 3)
    rows: list[dict[str, Any]] = []
    curves: list[Row] = []
    for name, make in METHODS.items():
        found = {steps: [descended(make, steps, seed) for seed in numbers] for steps in lengths}
        means = [spread([one["measured"] for one in found[steps]])["mean"] for steps in lengths]
        bounds = [spread([one["bound 6.12"] for one in found[steps]])["mean"] for steps in lengths]
        constant = means[0] / bounds[0]  # the bounds have a constant that is not known: that of the shortest
        over = [mean / (constant * bound) for mean, bound in zip(means, bounds, strict=True)]
        rows.append(
            {
                "method": name, "mean ‖∇f‖², by length": means, "6.12 up to its constant": bounds,
                "measured over bound": over[-1],
                "falls like T to the": math.log(means[-1] / means[0]) / math.log(lengths[-1] / lengths[0]),
                "6.12 over 6.10": bounds[-1] / bound_610(lengths[-1], 3 * NOISE),
            }
        )  # fmt: skip
        curves += [
            {"name": f"{name}, {kind}", "x": lengths, "y": values}
            for kind, values in (("measured", means), ("6.12", [constant * b for b in bounds]))
        ]
    told = ", ".join(f"{row['method']} {row['falls like T to the']:.2f}" for row in rows)
    return {
        "title": "Rates of convergence against the bounds 6.10 and 6.12",
        "source": "Savarese, Principled Approximation Methods, section 6.2, eqs. 6.9–6.12",
        "finding": f"the mean squared gradient falls like T to the {told} (the bounds say −0.5 or faster)",
        "scale": f"a noisy quadratic of {DIMENSIONS} variables, {lengths} steps",
        "seeds": list(numbers),
        "machine": machine(),
        "columns": list(rows[0]),
        "rows": rows,
        "curves": curves,
        "x_label": "steps",
        "y_label": "mean of ‖∇f‖²",
        "notes": [
            "Bounds hold up to a constant that is not given: that of the shortest run serves for the longer.",
            "On eq. 6.13 itself see `reproduce delayed-adam`.",
        ],
    }
