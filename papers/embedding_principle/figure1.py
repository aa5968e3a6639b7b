"""Embedding principle, Figures 1(a, b) and 4: Iris with appendix C's settings, one to three hidden layers."""

import itertools
import math
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from papers.common.arms import machine
from papers.common.cells import Cells
from papers.common.protocol import protocol
from papers.embedding_principle.traces import SOURCE, Pair
from torchlift.data.small import iris_raw

PUBLISHED = protocol("embedding_principle", "Figure 1(a, b)")
DEPTHS, SEEDS, EVERY = (1, 2, 3), 3, 100
SHARED = 1 / 9
"""The loss of a network that tells one class from the other two, and takes these for one."""
Weights = list[tuple[Tensor, Tensor]]


def stacked(sizes: list[int], std: float, seeds: range, device: str | None) -> Weights:
    """A network for each seed, as one stack: all parameters from N(0, std²)."""
    layers: Weights = []
    draws = [torch.Generator().manual_seed(seed) for seed in seeds]
    for inputs, outputs in itertools.pairwise(sizes):
        pairs = [
            (std * torch.randn(inputs, outputs, generator=g), std * torch.randn(1, outputs, generator=g))
            for g in draws
        ]
        weight, bias = (torch.stack(some).to(device).requires_grad_() for some in zip(*pairs, strict=True))
        layers.append((weight, bias))
    return layers


def outputs(weights: Weights, x: Tensor) -> Tensor:
    """Every network's outputs, seeds first."""
    h = x.expand(len(weights[0][0]), *x.shape)
    for weight, bias in weights[:-1]:
        h = torch.baddbmm(bias, h, weight).relu()
    return torch.baddbmm(weights[-1][1], h, weights[-1][0])


def descended(
    weights: Weights, data: Pair, lr: float, steps: int
) -> tuple[list[list[float]], list[list[float]]]:
    """Full-batch gradient descent on the mean squared error: losses and accuracies, every 100 steps."""
    x, y = data
    parameters = [p for pair in weights for p in pair]
    losses: list[Tensor] = []
    accuracies: list[Tensor] = []
    for step in range(steps + 1):
        scores = outputs(weights, x)
        loss = (scores - y).square().mean((1, 2))
        if step % EVERY == 0 or step == steps:
            losses.append(loss.detach().clone())
            accuracies.append((scores.argmax(2) == y.argmax(1)).float().mean(1))
        slopes = torch.autograd.grad(loss.sum(), parameters)
        with torch.no_grad():
            for parameter, slope in zip(parameters, slopes, strict=True):
                parameter.sub_(slope, alpha=lr)
    return torch.stack(losses, 1).tolist(), torch.stack(accuracies, 1).tolist()


def trained(
    depth: int, numbers: range, data: Pair, steps: int, lr: float, deviation: float, device: str | None
) -> Any:
    """The networks of one depth."""
    return descended(stacked([4, *[50] * depth, 3], deviation, numbers, device), data, lr, steps)


def slow(losses: list[float], factor: float = 1.15) -> list[tuple[int, float]]:
    """Where a training slows down and goes on: (index, loss) at each least speed between two larger ones.

    The speed is −d log(loss) / d log(time), over times that grow by ``factor``; a slow stretch has at most a
    half of the speed before it and of the speed after it.
    """
    ticks = sorted({round(factor**k) for k in range(1, int(math.log(len(losses)) / math.log(factor)) + 1)})
    ticks = [tick for tick in ticks if tick < len(losses)]
    speeds = [-math.log(losses[b] / losses[a]) / math.log(b / a) for a, b in itertools.pairwise(ticks)]
    stalls: list[tuple[int, float]] = []
    for i, speed in enumerate(speeds):
        before, after = max(speeds[:i], default=0.0), max(speeds[i + 1 :], default=0.0)
        lowest = speed == min(speeds[j] for j in stretch(speeds, i))
        if lowest and speed <= before / 2 and speed <= after / 2:
            middle = round(math.sqrt(ticks[i] * ticks[i + 1]))
            stalls.append((middle, losses[middle]))
    return stalls


def stretch(speeds: list[float], at: int) -> range:
    """The neighbors of a speed that are less than twice as fast."""
    low = high = at
    while low > 0 and speeds[low - 1] < 2 * max(speeds[at], 0.0):
        low -= 1
    while high + 1 < len(speeds) and speeds[high + 1] < 2 * max(speeds[at], 0.0):
        high += 1
    return range(low, high + 1)


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
) -> dict[str, Any]:
    """Nine networks, 100,000 full-batch steps each; ``epochs`` are steps, as the paper counts them."""
    del data
    torch.set_num_threads(1)
    x, y = iris_raw()
    x, y = x[:: max(1, len(x) // (images or len(x)))], y[:: max(1, len(y) // (images or len(y)))]
    pair = x.to(device), one_hot(y, 3).float().to(device)
    steps, numbers = round(epochs or PUBLISHED.epochs or 100_000), range(seeds or SEEDS)
    cells = Cells(Path(out) / "figure1" / f"cells-{steps}-{len(x)}-{len(numbers)}.jsonl")
    rows: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    work = partial(trained, numbers=numbers, data=pair, steps=steps, device=device, **PUBLISHED.arms["ReLU"])
    trainings = cells.all({str(depth): partial(work, depth) for depth in DEPTHS})
    for depth, (losses, accuracies) in zip(DEPTHS, trainings, strict=True):
        for seed, line, right in zip(numbers, losses, accuracies, strict=True):
            stalls = slow(line)
            rows += [row(depth, seed, stalls, right, line)]
        ticks = range(1, len(losses[0]), max(1, len(losses[0]) // 200))
        for panel, values in (("training loss", losses), ("training accuracy", accuracies)):
            curves.append({"name": f"{depth} hidden", "panel": panel} | curve(values, ticks))
    stalled = [one for one in rows if one["slow at"] is not None]
    shared = [one["slow at"] for one in stalled]
    span = f"{min(shared):.3f} to {max(shared):.3f}" if shared else "none"
    return {
        "title": "Figure 1(a, b): Iris, networks of one to three hidden layers slow down at one loss",
        "source": f"{SOURCE}, Figures 1(a, b) and 4(b), appendix C",
        "finding": f"{len(stalled)} of {len(rows)} networks slow down and go on, at losses of {span}, with "
        f"{min((one['accuracy there'] for one in stalled), default=0):.1f} to "
        f"{max((one['accuracy there'] for one in stalled), default=0):.1f} % of the flowers right",
        "scale": f"{steps:,} full-batch steps, {len(x)} flowers, width 50",
        "seeds": list(numbers),
        "machine": machine(),
        "columns": list(rows[0]),
        "rows": rows,
        "stalled": len(stalled),
        "networks": len(rows),
        "farthest apart": max(shared) / min(shared) if shared else None,
        "curves": sorted(curves, key=lambda one: one["panel"], reverse=True),
        "x_label": "steps",
        "notes": [
            "The paper's 0.07 is taken as the deviation of the weights; as a variance (deviation 0.26) the "
            "networks start outside of the linear regime.",
            "Slow: where −d log(loss) / d log(steps) is least between two larger speeds, at most half of "
            "both; of several the one nearest to a loss of 1/9.",
        ],
    }


def curve(values: list[list[float]], ticks: range) -> dict[str, Any]:
    """The mean over seeds, and from the least to the largest."""
    at = [[line[tick] for line in values] for tick in ticks]

    def short(pick: Any) -> list[float]:
        return [float(f"{pick(some):.4g}") for some in at]

    band = {"low": short(min), "high": short(max)}
    return {"x": [EVERY * tick for tick in ticks], "y": short(statistics.fmean), "band": band}


def row(
    depth: int, seed: int, stalls: list[tuple[int, float]], right: list[float], losses: list[float]
) -> dict[str, Any]:
    """One network: where it slowed down, and how it ended."""
    nearest = min(stalls, key=lambda one: abs(math.log(one[1] / SHARED)), default=None)
    return {
        "hidden layers": depth,
        "seed": seed,
        "slow at": None if nearest is None else nearest[1],
        "step": None if nearest is None else EVERY * nearest[0],
        "accuracy there": None if nearest is None else 100 * right[nearest[0]],
        "other slow stretches": [float(f"{loss:.4g}") for at, loss in stalls if (at, loss) != nearest],
        "loss at the end": losses[-1],
        "accuracy at the end": 100 * right[-1],
    }
