"""A 64 × 64 image from 512 random ReLUs: total variation to a certified minimum, beside autograd as long."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d

import torchlift as tl
from papers.common.arms import machine, spread
from papers.common.cells import Cells
from papers.common.sheet import pixels, sheet

OURS, RIVALS = "auto", ("adam", "lbfgs")
ALPHAS = (1e-3, 3e-3)
RATES = {"auto": (None,), "adam": (0.02, 0.1), "lbfgs": (None,)}
SIDE, SECONDS, TUNING_SEED = 64, 120.0, 100


def layer(seed: int) -> nn.Sequential:
    """A random layer with a ReLU for every eight pixels."""
    torch.manual_seed(seed)
    linear = nn.Linear(SIDE**2, SIDE**2 // 8)
    nn.init.normal_(linear.weight, std=1 / SIDE)
    nn.init.normal_(linear.bias, std=0.05)
    return nn.Sequential(linear, nn.ReLU()).double().eval()


def phantom(seed: int) -> Tensor:
    """Two rectangles and a disc on 64 × 64, shifted by the seed, then means of squares of pixels."""
    x = torch.zeros(1, 64, 64, dtype=torch.float64)
    x[0, 10:30, 8:24], x[0, 36:56, 30:58] = 0.8, 0.5
    rows, columns = torch.meshgrid(torch.arange(64), torch.arange(64), indexing="ij")
    x[0][(rows - 20) ** 2 + (columns - 44) ** 2 < 100] = 1.0
    return avg_pool2d(x.roll((3 * seed, 5 * seed), (1, 2)), 64 // SIDE)


def invert(
    model: nn.Module,
    y: Tensor,
    method: str,
    alpha: float,
    rate: float | None,
    seconds: float,
) -> tl.Inversion:
    """Ours to a relative gap of 10⁻⁴, a rival until the clock stops it or it stands still."""
    limits: dict[str, Any] = {"tol": 1e-4} if method == OURS else {"tol": 1e-9, "lr": rate}
    return tl.invert(
        model,
        y,
        reg=tl.convex.TV(alpha),
        shape=(SIDE, SIDE),
        box=(0.0, 1.0),
        method=method,
        seconds=seconds,
        max_iter=10**6,
        progress=False,
        **limits,
    )


def trial(
    out: Path | None,
    method: str,
    alpha: float,
    rate: float | None,
    seed: int,
    image: int,
    seconds: float,
) -> dict[str, Any]:
    """One inversion, in numbers; ``out`` gets its page."""
    model, x = layer(seed), phantom(image)
    one = invert(model, model(x.flatten(1)).detach(), method, alpha, rate, seconds)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        one.report(out / f"inversion-layer-{method}.html", x)
    return {
        "solver": one.method,
        "psnr": float(tl.inversion.psnr(one.x.reshape(x.shape), x).mean()),
        "residual": one.residual,
        "seconds": one.seconds,
        "converged": one.converged,
        "gap": None if one.gap is None else one.gap / one.objective,
        "history": one.history,
        "pixels": pixels(one.x.reshape(SIDE, SIDE)),
    }


def tuned(cells: Cells, method: str, seconds: float) -> tuple[float, float | None, float]:
    """The α and rate of the best PSNR on a layer and a phantom that are not in the table; its seconds."""
    scores = {
        (alpha, rate): cells.get(
            f"tuning {method} {alpha:g} {rate}",
            partial(trial, None, method, alpha, rate, TUNING_SEED, 1, seconds),
        )
        for alpha in ALPHAS
        for rate in RATES[method]
    }
    best = max(scores, key=lambda setting: scores[setting]["psnr"])
    return *best, scores[best]["seconds"]


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
) -> dict[str, Any]:
    """Ours to convergence (in at most ``epochs`` CPU seconds: 120), then the rivals for as long as it took.

    ``out`` gets a page of pictures for every method on the first seed; a stopped run goes on there.
    """
    del data, images
    torch.set_num_threads(1)
    time.perf_counter = time.process_time  # budgets in CPU seconds
    limit, numbers = epochs or SECONDS, range(seeds or 3)
    cells = Cells(Path(out) / "inversion_layer" / f"cells-{epochs or 0:g}.jsonl")
    alpha, _, seconds = tuned(cells, OURS, limit)
    settings = {OURS: (alpha, None)} | {m: tuned(cells, m, seconds / 3)[:2] for m in RIVALS}
    by_method: dict[str, list[dict[str, Any]]] = {m: [] for m in settings}
    for seed in numbers:
        clock = limit
        for m, (alpha, rate) in settings.items():
            page = out if seed == 0 else None
            make = partial(trial, page, m, alpha, rate, seed, seed, clock)
            by_method[m].append(cells.get(f"{m} {seed}", make))
            clock = by_method[OURS][-1]["seconds"]
    rows = [row(settings[m], runs) for m, runs in by_method.items()]
    shown = [[pixels(phantom(s)), *(by_method[m][s]["pixels"] for m in by_method)] for s in numbers]
    return {
        "title": f"A {SIDE} × {SIDE} image from {SIDE**2 // 8} random ReLUs, with total variation",
        "source": "A Unified Framework for Lifted Training and Inversion Approaches (arXiv 2510.09796), "
        "single layer",
        "finding": "; ".join(
            f"{one['method']} {one['PSNR']['mean']:.2f} ± {one['PSNR']['sd']:.2f} dB in "
            f"{one['CPU seconds']['mean']:.0f} CPU s"
            + (
                ""
                if one["largest gap"] is None
                else f", {one['converged']} of {one['of']} converged, the objective proved to be within "
                f"{one['largest gap']:.1g} of the least"
            )
            for one in rows
        ),
        "scale": f"ours to a relative gap of 1e-4 or {limit:g} CPU s, the others as long; one thread, "
        "float64; a phantom of flat parts, no noise",
        "seeds": list(numbers),
        "machine": machine(),
        "columns": list(rows[0]),
        "rows": rows,
        "images": [sheet("truth, " + ", ".join(str(one["method"]) for one in rows), shown)],
        "curves": [
            {"name": first["solver"], "x": [i for i, _, _ in kept], "y": [value for _, value, _ in kept]}
            for first in (runs[0] for runs in by_method.values())
            if (kept := thinned(first["history"]))
        ],
        "x_label": "iteration",
        "y_label": "objective",
        "notes": [
            f"Each method has its best α of {ALPHAS} on another layer and another phantom, Adam also its "
            f"best step of {RATES['adam']}; the rivals are tuned with a third of the CPU seconds that ours "
            "took there.",
            "The rivals minimize ½‖N(x) − y‖² + αJ(x): their objectives are not ours.",
        ],
    }


def row(setting: tuple[float, float | None], runs: list[dict[str, Any]]) -> dict[str, Any]:
    """One method."""
    return {
        "method": runs[0]["solver"],
        "alpha": setting[0],
        "step": setting[1],
        "PSNR": spread([one["psnr"] for one in runs]),
        "residual": spread([one["residual"] for one in runs]),
        "CPU seconds": spread([one["seconds"] for one in runs]),
        "converged": sum(one["converged"] for one in runs),
        "of": len(runs),
        "largest gap": None if runs[0]["gap"] is None else max(one["gap"] for one in runs),
    }


def thinned(history: list[Any], most: int = 200) -> list[Any]:
    """Evenly spaced rows, the last among them."""
    every = max(1, -(-len(history) // most))
    return history[::-1][::every][::-1]
