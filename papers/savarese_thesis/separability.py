"""AvaGrad's thesis, Figures 6.1 to 6.4: the grid of learning rates and ε, for Adam and for AvaGrad."""

import math
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from torch.optim import Adam

from papers.common.arms import machine
from papers.common.cells import Cells
from papers.common.protocol import thinned
from papers.savarese_thesis import short_trainings
from papers.savarese_thesis.short_trainings import Workload, trained
from torchlift.optim import AvaGrad

METHODS = {"Adam": Adam, "AvaGrad": AvaGrad}
RATES = [10.0**k for k in range(-4, 6)]
EPSILONS = [10.0**k for k in range(-8, 5, 2)]
PAPER_RATES = [base * 10.0**k for k in range(-6, 4) for base in (1.0, 5.0)] + [5e-7]
PAPER_EPSILONS = [base * 10.0**k for k in range(-8, 2) for base in (1.0, 2.0)] + [100.0]

Grid = dict[tuple[float, float], float]


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
    stand_in: bool = False,
) -> dict[str, Any]:
    """Every (α, ε) trained once per seed; the stand-in has coarser grids."""
    numbers = range(seeds or 3)
    size = stand_in, epochs, images, device
    workloads = [short_trainings.images(data, *size), short_trainings.characters(data, *size)]
    grids = {
        (workload.name, name): grid(workload, name, numbers, out, stand_in)
        for workload in workloads
        for name in METHODS
    }
    rows = [summary(task, name, cells) for (task, name), cells in grids.items()]
    sides = (" × ".join(map(str, map(len, axes(stand_in, workload.share)))) for workload in workloads)
    trained_for = ", ".join(
        f"{workload.name} {workload.steps} steps, {side} grid"
        for workload, side in zip(workloads, sides, strict=True)
    )
    return {
        "title": "Figures 6.1 to 6.4: does the best learning rate depend on ε?",
        "source": "Savarese, Principled Approximation Methods, section 6.4.2",
        "finding": "Decades over which the best α spreads: " + ", ".join(map(spoken, rows)) + ".",
        "scale": trained_for,
        "stand_in": stand_in,
        "on the edge of the grid": [
            f"α at ε {eps:g} of {name} on {task}"
            for (task, name), cells in grids.items()
            for eps, rate in best_by_epsilon(cells).items()
            if rate in ends(cells)
        ],
        "seeds": list(numbers),
        "machine": machine(),
        "columns": list(rows[0]),
        "rows": rows,
        "curves": [best_rates(task, name, cells) for (task, name), cells in grids.items()],
        "x_label": "log10 ε",
        "notes": [
            "Spread: log10 of the largest over the smallest best α, over all ε.",
            "Price: what one α for all ε costs beside each ε's own, on average, at the cheapest such α.",
        ],
        "grids": {f"{task}, {name}": as_rows(cells) for (task, name), cells in grids.items()},
    }


def spoken(row: dict[str, Any]) -> str:
    """One grid in a few words."""
    return f"{row['task']} {row['spread of best α, decades']:.1f} with {row['method']}"


def as_rows(cells: Grid) -> list[list[float]]:
    """α, ε and the measure, for the record."""
    return [[lr, eps, value] for (lr, eps), value in cells.items()]


def axes(stand_in: bool, share: float) -> tuple[list[float], list[float]]:
    """Learning rates and ε, in rising order, or a share of each."""
    rates, epsilons = (RATES, EPSILONS) if stand_in else (sorted(PAPER_RATES), PAPER_EPSILONS)
    return thinned(rates, share), thinned(epsilons, share)


def grid(workload: Workload, method: str, seeds: range, out: Path, stand_in: bool) -> Grid:
    """Validation measure for every (α, ε), the mean over seeds; finished cells are read from ``out``."""
    said = f"{workload.name} {workload.steps} {len(workload.train[0])} {method}"
    points = list(product(*axes(stand_in, workload.share)))
    measured = Cells(out / "separability.jsonl").all(
        {
            f"{said} {lr:g} {eps:g} {seed}": partial(
                trained, workload, partial(METHODS[method], lr=lr, eps=eps), seed
            )
            for lr, eps in points
            for seed in seeds
        }
    )
    some = len(seeds)
    return {point: sum(measured[n * some : (n + 1) * some]) / some for n, point in enumerate(points)}


def best_by_epsilon(cells: Grid) -> dict[float, float]:
    """The best α for every ε."""
    epsilons = sorted({eps for _, eps in cells})
    return {
        eps: min((lr for lr, other in cells if other == eps), key=lambda lr: cells[lr, eps])
        for eps in epsilons
    }


def ends(cells: Grid) -> tuple[float, float]:
    """The smallest and the largest rate of a grid."""
    rates = [lr for lr, _ in cells]
    return min(rates), max(rates)


def summary(task: str, method: str, cells: Grid) -> dict[str, Any]:
    """How far apart the best rates are, and what one rate for all costs."""
    best = best_by_epsilon(cells)
    price = {
        lr: sum(cells[lr, eps] - cells[best[eps], eps] for eps in best) / len(best)
        for lr in {lr for lr, _ in cells}
    }
    lr, eps = min(cells, key=cells.__getitem__)
    return {
        "task": task,
        "method": method,
        "best value": cells[lr, eps],
        "at α": lr,
        "at ε": eps,
        "spread of best α, decades": math.log10(max(best.values()) / min(best.values())),
        "price of one α": min(price.values()),
    }


def best_rates(task: str, method: str, cells: Grid) -> dict[str, Any]:
    """log10 of the best α over log10 ε, as a curve."""
    best = best_by_epsilon(cells)
    x, y = ([math.log10(value) for value in values] for values in (best, best.values()))
    return {"panel": f"{task}: log10 of the best α", "name": method, "x": x, "y": y}
