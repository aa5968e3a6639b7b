"""AvaGrad's thesis, Tables 6.1 and 6.2: ten optimizers on images and characters, α and ε tuned for all."""

import math
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch.optim import SGD, Adam, AdamW, Optimizer, RAdam

from papers.common.arms import machine
from papers.common.cells import Cells
from papers.savarese_thesis import short_trainings
from papers.savarese_thesis.separability import PAPER_EPSILONS, PAPER_RATES
from papers.savarese_thesis.short_trainings import Workload, trained
from torchlift.optim import AvaGrad, AvaGradW, gld

RATES = [10.0**k for k in range(-5, 5)]
EPSILONS = [10.0**k for k in range(-8, 5, 2)]
BUDGET, LONGER = 12, 2
PAPER = {
    "SGD": (3.86, 1.403), "Adam": (3.64, 1.378), "AMSGrad": (3.90, 1.384), "AdaBound": (5.40, 4.346),
    "AdaShift": (4.08, 1.399), "RAdam": (3.89, 1.401), "AdaBelief": (3.98, 1.379), "AdamW": (4.11, 1.398),
    "AvaGrad": (3.80, 1.375), "AvaGradW": (3.97, 1.375),
}  # fmt: skip
"""Test error of WRN-28-10 on CIFAR-10 in %, and bits per character of three LSTM layers of 300."""


def methods() -> dict[str, Callable[..., Optimizer]]:
    """What is compared; every one takes ``lr`` and ``eps`` (SGD ignores the latter)."""
    from pytorch_optimizer import AdaBelief, AdaBound, AdaShift

    return {
        "SGD": lambda params, lr, eps, **more: SGD(params, lr=lr, momentum=0.9, **more),
        "Adam": Adam,
        "AMSGrad": partial(Adam, amsgrad=True),
        "AdaBound": lambda params, lr, eps, **more: AdaBound(
            params, lr=lr, final_lr=100 * lr, eps=eps, **more
        ),
        "AdaShift": AdaShift,
        "RAdam": RAdam,
        "AdaBelief": lambda params, lr, eps, **more: AdaBelief(params, lr=lr, eps=1e-8 * eps, **more),
        "AdamW": AdamW,
        "AvaGrad": AvaGrad,
        "AvaGradW": AvaGradW,
    }


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
    stand_in: bool = False,
) -> dict[str, Any]:
    """Tune each method by gradientless descent on validation data, then train it twice as long."""
    numbers = range(1, 1 + (seeds or 3))
    axes = [RATES, EPSILONS] if stand_in else [sorted(PAPER_RATES), PAPER_EPSILONS]
    size = stand_in, epochs, images, device
    pictures, text = short_trainings.images, short_trainings.characters
    workloads = [pictures(data, *size), text(data, *size)]
    last = workloads if stand_in else [pictures(data, *size, widen=10), text(data, *size)]
    cells = Cells(out / "optimizers.jsonl")
    pairs = list(zip(workloads, last, strict=True))
    rows = cells.all(
        {
            row_key(pair, name, numbers): partial(
                row, pair, name, make, axes, numbers, out / "optimizers.jsonl", stand_in
            )
            for pair in pairs
            for name, make in methods().items()
        }
    )
    outside = [
        f"{symbol} of {one['method']} on {one['task']}"
        for one in rows
        for symbol, axis in zip("αε", axes, strict=True)
        if one[symbol] is not None and not axis[0] <= one[symbol] <= axis[-1]
    ]
    return {
        "title": "Tables 6.1 and 6.2: optimizers whose ε is tuned too",
        "source": "Savarese, Principled Approximation Methods, section 6.4.1",
        "finding": "; ".join(ranking(workload.name, rows) for workload in workloads)
        + f"; best outside the grid: {', '.join(outside) or 'nothing'}.",
        "scale": ", ".join(f"{workload.name} {LONGER * workload.steps} steps" for workload in workloads)
        + f" after {math.ceil(workloads[0].share * BUDGET)} trials of half of that",
        "stand_in": stand_in,
        "best outside the grid": outside,
        "seeds": list(numbers),
        "machine": machine(),
        "columns": list(rows[0]),
        "rows": rows,
        "notes": [
            "Images: test error in %; characters: test bits per character. The thesis has far larger models.",
            f"Every method has the same {BUDGET} trials on {len(axes[0])} rates and {len(axes[1])} ε, "
            "seed 0; for AdaBelief ε is smaller by 1e-8, as in the thesis; AdaBound's final rate is 100·lr.",
            "Without the thesis' grid, the search goes on outward from an edge as long as it gets better.",
        ],
    }


def row_key(workloads: tuple[Workload, Workload], name: str, seeds: range) -> str:
    """The name of a row in the journal."""
    return f"row {workloads[0].name} {workloads[0].steps} {len(workloads[0].train[0])} {name} {seeds}"


def row(
    workloads: tuple[Workload, Workload],
    name: str,
    make: Callable[..., Optimizer],
    axes: list[list[float]],
    seeds: range,
    journal: Path,
    stand_in: bool,
) -> dict[str, Any]:
    """Tune a method on a task, train it with every seed, on the larger network, beside the thesis."""
    (workload, large), cells = workloads, Cells(journal)

    def value(lr: float, eps: float, seed: int = 0, *, last: bool = False) -> float:
        key = f"{workload.name} {workload.steps} {len(workload.train[0])} {name} {lr:g} {eps:g} {seed} {last}"
        longer = LONGER if last and large is workload else 1
        optimizer, used = partial(make, lr=lr, eps=eps), large if last else workload
        return cells.get(key, lambda: trained(used, optimizer, seed, longer=longer, test=last))

    grid = [axes[0], [1.0]] if name == "SGD" else axes
    middle = len(grid[0]) // 2, len(grid[1]) // 2
    best = gld(value, grid, trials=math.ceil(workload.share * BUDGET), start=middle).best
    lr, eps = bracketed(value, best, grid) if stand_in else best
    tests = [value(lr, eps, seed, last=True) for seed in seeds]
    return {
        "task": workload.name,
        "method": name,
        "test": {"mean": statistics.mean(tests), "sd": statistics.stdev(tests) if len(tests) > 1 else 0.0},
        "thesis": PAPER[name][0 if workload.name == "images" else 1],
        "α": lr,
        "ε": None if name == "SGD" else eps,
    }


def bracketed(
    value: Callable[..., float], best: Sequence[float], axes: Sequence[Sequence[float]]
) -> Sequence[float]:
    """A point of a grid; from an edge on outward, a step of the grid at a time, as long as it gets better."""
    point = best
    for number, axis in enumerate(axes):
        if len(axis) > 1 and point[number] in (axis[0], axis[-1]):
            step = axis[-1] / axis[-2] if point[number] == axis[-1] else axis[0] / axis[1]
            while value(*(further := scaled(point, number, step))) < value(*point):
                point = further
    return point


def scaled(point: Sequence[float], number: int, factor: float) -> Sequence[float]:
    """A point with one of its values multiplied."""
    return [value * factor if at == number else value for at, value in enumerate(point)]


def ranking(task: str, rows: list[dict[str, Any]]) -> str:
    """The three best on a task."""
    best = sorted((one for one in rows if one["task"] == task), key=lambda one: one["test"]["mean"])[:3]
    return f"{task}: " + ", ".join(f"{one['method']} {one['test']['mean']:.3g}" for one in best)
