"""AvaGrad's thesis, Figures 6.5 and 6.6: how many trials tuning α and ε takes, for Adam and for AvaGrad."""

import logging
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from papers.common.arms import machine
from papers.savarese_thesis import short_trainings
from papers.savarese_thesis.separability import METHODS, Grid, grid
from torchlift.optim import gld, line_searches

CLOSE = {"images": 0.5, "characters": 0.02}
"""How far above the best of the grid is close enough: points of error (as in the thesis), bits."""

Axes = list[list[float]]
Values = list[float]
Objective = Callable[[float, float], float]


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
    stand_in: bool = False,
) -> dict[str, Any]:
    """Search the grids of the entry ``separability`` (trained if need be) with every tuner, many times."""
    numbers = range(seeds or 30)
    size = stand_in, epochs, images, device
    workloads = [short_trainings.images(data, *size), short_trainings.characters(data, *size)]
    grids = {
        (workload.name, name): grid(workload, name, range(1), out, stand_in)
        for workload in workloads
        for name in METHODS
    }
    curves = {
        (task, name, tuner): [suboptimality(search, cells, seed) for seed in numbers]
        for (task, name), cells in grids.items()
        for tuner, search in TUNERS.items()
    }
    rows = [row(*key, runs, len(grids[key[:2]])) for key, runs in curves.items()]
    sides = [" × ".join(map(str, map(len, axes(cells)))) for cells in grids.values()]
    return {
        "title": "Figures 6.5 and 6.6: trials until a tuner is close to the best of the grid",
        "source": "Savarese, Principled Approximation Methods, section 6.4.3",
        "finding": finding(rows),
        "scale": f"grids of {', '.join(dict.fromkeys(sides))}",
        "stand_in": stand_in,
        "seeds": list(numbers),
        "machine": machine(),
        "columns": list(rows[0]),
        "rows": rows,
        "curves": [mean_curve(*key, runs) for key, runs in curves.items() if "gradientless" in key[2]],
        "x_label": "trials",
        "notes": [
            f"Close: within {CLOSE['images']} points of error, or {CLOSE['characters']} bits per character.",
            "A tuner that ends before it is close counts with the size of the grid.",
            "The objective is read from the trained grid, one training seed per cell.",
        ],
    }


def by_gld(f: Objective, grid: Axes, seed: int) -> Values:
    """Gradientless descent."""
    return [value for _, value in gld(f, grid, trials=len(grid[0]) * len(grid[1]), seed=seed).trials]


def by_coordinates(f: Objective, grid: Axes, seed: int) -> Values:
    """Gradientless descent along one axis at a time."""
    trials = len(grid[0]) * len(grid[1])
    return [value for _, value in gld(f, grid, coordinate=True, trials=trials, seed=seed).trials]


def by_lines(f: Objective, grid: Axes, seed: int) -> Values:
    """Two line searches, over α and then over ε, from a different start for every seed."""
    start = (seed % len(grid[0]), seed % len(grid[1]))
    return [value for _, value in line_searches(f, grid, start=start).trials]


def by_optuna(sampler: str, f: Objective, grid: Axes, seed: int) -> Values:
    """One of Optuna's samplers on the indices of the grid; a point asked again costs a trial, as it would."""
    import optuna

    optuna.logging.set_verbosity(logging.ERROR)
    searcher = getattr(optuna.samplers, sampler)(seed=seed)
    study = optuna.create_study(sampler=searcher)

    def objective(trial: Any) -> float:
        rate, eps = (trial.suggest_int(name, 0, len(axis) - 1) for name, axis in zip("αε", grid, strict=True))
        return f(grid[0][rate], grid[1][eps])

    study.optimize(objective, n_trials=len(grid[0]) * len(grid[1]))
    return [trial.value for trial in study.trials if trial.value is not None]


TUNERS: dict[str, Callable[[Objective, Axes, int], Values]] = {
    "gradientless descent": by_gld,
    "gradientless descent by coordinates": by_coordinates,
    "two line searches": by_lines,
    "Parzen trees": lambda f, grid, seed: by_optuna("TPESampler", f, grid, seed),
    "random": lambda f, grid, seed: by_optuna("RandomSampler", f, grid, seed),
}


def axes(cells: Grid) -> Axes:
    """The learning rates and ε of a grid, in rising order."""
    rates, epsilons = (sorted(set(axis)) for axis in zip(*cells, strict=True))
    return [rates, epsilons]


def suboptimality(search: Callable[[Objective, Axes, int], Values], cells: Grid, seed: int) -> Values:
    """Best value so far less the best of the grid, after each trial."""
    values = search(lambda lr, eps: cells[lr, eps], axes(cells), seed)
    least = min(cells.values())
    return [min(values[: count + 1]) - least for count in range(len(values))]


def trials_until(runs: Values, close: float, size: int) -> int:
    """The number of trials after which a run is close, or the size of the grid."""
    return next((count for count, gap in enumerate(runs, start=1) if gap <= close), size)


def row(task: str, method: str, tuner: str, runs: list[Values], size: int) -> dict[str, Any]:
    """Trials until close, over seeds."""
    counts = [trials_until(one, CLOSE[task], size) for one in runs]
    reached = sum(one[-1] <= CLOSE[task] for one in runs) / len(runs)
    spread = {"mean": statistics.mean(counts), "sd": statistics.pstdev(counts)}
    return {"task": task, "method": method, "tuner": tuner, "trials": spread, "reached": reached}


def finding(rows: list[dict[str, Any]]) -> str:
    """Adam's best tuner beside AvaGrad's, on each task."""
    best = {(one["task"], one["method"]): one for one in sorted(rows, key=lambda one: -one["trials"]["mean"])}
    words = (
        f"{task} {one['trials']['mean']:.0f} with {method} ({one['tuner']})"
        for (task, method), one in sorted(best.items())
    )
    return "Fewest trials on average: " + ", ".join(words) + "."


def mean_curve(task: str, method: str, tuner: str, runs: list[Values]) -> dict[str, Any]:
    """The mean gap after each trial, ended runs held."""
    length = min(60, max(map(len, runs)))
    y = [statistics.mean(one[min(count, len(one) - 1)] for one in runs) for count in range(length)]
    return {
        "panel": f"{task}: gap to the best",
        "name": f"{method}, {tuner}",
        "x": [*range(1, length + 1)],
        "y": y,
    }
