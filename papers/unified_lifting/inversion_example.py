"""The worked example: a function of 25 ReLUs run backward at three values."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

import torchlift as tl
from papers.common.arms import machine

RECOVERED = {0.9: 0.8995, 1.2: 1.1999, 1.4: 1.4000}
"""The input, and what the source recovers."""


def interpolation() -> nn.Sequential:
    """25 ReLUs that interpolate u(2u/3)^{3u} on [0, 1.5]."""
    knots = torch.arange(25, dtype=torch.float64) * 3 / 50
    ends = torch.cat([knots, knots.new_tensor([1.5])])
    slopes = (ends * (2 * ends / 3) ** (3 * ends)).diff() / ends.diff()
    inward, outward = nn.Linear(1, 25).double(), nn.Linear(25, 1, bias=False).double()
    with torch.no_grad():
        inward.weight.fill_(1.0)
        inward.bias.copy_(-knots)
        outward.weight.copy_(torch.cat([slopes[:1], slopes.diff()])[None])
    return nn.Sequential(inward, nn.ReLU(), outward)


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
) -> dict[str, Any]:
    """Block-coordinate descent with α = 10⁻⁴, and the rivals; nothing is random."""
    del out, data, seeds, epochs, images
    model = interpolation()
    u = torch.tensor([[value] for value in RECOVERED], dtype=torch.float64)
    y = model(u).detach()
    rows: list[dict[str, Any]] = []
    for method in ("auto", "adam", "lbfgs"):
        start = None if method == "auto" else torch.full_like(u, 0.5)
        result = tl.invert(model, y, reg=tl.convex.L2(1e-4), method=method, init=start, progress=False)
        rows += [
            {
                "input": original,
                "method": result.method,
                "ours": float(x),
                "source": wanted,
                "converged": result.converged,
            }
            for (original, wanted), x in zip(RECOVERED.items(), result.x[:, 0], strict=True)
        ]
    shown = ", ".join(f"{row['input']} → {row['ours']:.4f} (source {row['source']:.4f})" for row in rows[:3])
    return {
        "title": "25 ReLUs run backward",
        "source": "A Unified Framework for Lifted Training and Inversion Approaches (arXiv 2510.09796), "
        "lecture's example",
        "finding": shown,
        "scale": "the source's own",
        "seeds": [0],
        "machine": machine(),
        "columns": list(rows[0]),
        "rows": rows,
        "notes": [
            "w = 1, b_j = −3(j − 1)/50, the read-out interpolates u(2u/3)^{3u}; α = 10⁻⁴, J = ½u².",
            "The rivals start at 0.5: at 0, where ours starts, no ReLU is on and their gradient is 0.",
        ],
    }
