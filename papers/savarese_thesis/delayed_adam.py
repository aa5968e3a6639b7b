"""AvaGrad's thesis, Figure 6.7: Adam fails on eq. 6.13, delayed Adam and Adam with growing ε do not."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Adam, Optimizer

from papers.common.arms import machine
from papers.common.cells import Cells
from torchlift.optim import AdamEps, DelayedAdam

RARE, STEEP = 1 / 500, 999.0
OPTIMUM = (1 - RARE) / (STEEP * RARE)
STARTS = (0.1, 0.4, 0.6, 0.9)
STEP, PAPER_STEPS = 2e-5, 1_000_000
COMMON = {"lr": STEP, "betas": (0.0, 0.99)}

METHODS: dict[str, Callable[[list[Tensor]], Optimizer]] = {
    "Adam": partial(Adam, eps=1e-8, **COMMON),
    "AMSGrad": partial(Adam, eps=1e-8, amsgrad=True, **COMMON),
    "Delayed Adam": partial(DelayedAdam, eps=1e-8, **COMMON),
    "Adam with ε = 10·√t": partial(AdamEps, eps=10.0, power=0.5, **COMMON),
}


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
) -> dict[str, Any]:
    """All methods from four starts; ``epochs`` are steps, a million unless given."""
    del data, images
    numbers = range(seeds or 5)
    steps = max(100, round(epochs or PAPER_STEPS))
    cells = Cells(out / "delayed-adam" / f"cells-{steps}-{len(numbers)}.jsonl")
    results = cells.all({name: partial(descend, make, steps, numbers) for name, make in METHODS.items()})
    descents = dict(zip(METHODS, results, strict=True))
    rows = [row(name, torch.tensor(ends)) for name, (ends, _) in descents.items()]
    return {
        "title": "Figure 6.7: where Adam goes on eq. 6.13",
        "source": "Savarese, Principled Approximation Methods, section 6.5.1",
        "finding": "; ".join(f"{one['method']} ends at {one['mean']:.3f} ± {one['sd']:.3f}" for one in rows)
        + f" (stationary point {OPTIMUM:.3f}).",
        "scale": f"{steps} steps of α = {STEP:g}, iterates averaged over the last tenth",
        "seeds": list(numbers),
        "machine": machine(),
        "columns": list(rows[0]),
        "rows": rows,
        "curves": [{"name": name, "x": x, "y": y} for name, (_, (x, y)) in descents.items()],
        "x_label": "step",
        "y_label": "mean of ‖∇f‖² so far",
        "notes": [
            "The thesis prints no step size. For growing ε the rate is α·ε_t (Corollary 6.1).",
            f"Starts {', '.join(map(str, STARTS))}; every start and seed draws its own samples.",
        ],
    }


def row(name: str, ends: Tensor) -> dict[str, Any]:
    """Where the iterates ended, over starts and seeds."""
    return {
        "method": name,
        "mean": ends.mean().item(),
        "sd": ends.std().item(),
        "lowest": ends.min().item(),
        "highest": ends.max().item(),
        "distance to the stationary point": (ends.mean() - OPTIMUM).abs().item(),
    }


def descend(
    make: Callable[[list[Tensor]], Optimizer], steps: int, seeds: range
) -> tuple[list[float], tuple[list[int], list[float]]]:
    """Run one method on all starts and seeds at once: entries of one tensor do not see each other.

    Returns the iterates averaged over the last tenth of the steps, and the running mean of ‖∇f‖² (Fig. 6.7).
    """
    w = torch.tensor(STARTS, dtype=torch.float64).repeat(len(seeds))
    optimizer = make([w])
    generator = torch.Generator().manual_seed(seeds[0])
    tail, squares, curve = torch.zeros_like(w), torch.zeros_like(w), {}
    for step in range(1, steps + 1):
        squares += expected_slope(w).square()
        w.grad = torch.where(torch.rand(w.shape, generator=generator) < RARE, STEEP * w, -1.0)
        optimizer.step()
        w.clamp_(0, 1)
        if step > 0.9 * steps:
            tail += w
        if step % (steps // 100) == 0:
            curve[step] = (squares / step).mean().item()
    return (tail / (steps - int(0.9 * steps))).tolist(), (list(curve), list(curve.values()))


def expected_slope(w: Tensor) -> Tensor:
    """∇f(w) for f(w) = E f_s(w), f_s(w) = 999·w²/2 with probability 1/500 and −w otherwise (6.13)."""
    return RARE * STEEP * w - (1 - RARE)
