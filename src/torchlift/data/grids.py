"""The synthetic shortest-paths task."""

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchlift.data.splits import Pair

FAR = 10_000

DISTANCES = (2, 4, 6, 8, 10)
"""The phases of the thesis' curriculum: how far apart query points may be."""


def dilate(cells: Tensor, diagonal: bool) -> Tensor:
    """The cells (booleans, n × h × w) and those one step away from them."""
    grown = cells.clone()
    grown[:, 1:] |= cells[:, :-1]
    grown[:, :-1] |= cells[:, 1:]
    across = grown.clone() if diagonal else cells
    grown[:, :, 1:] |= across[:, :, :-1]
    grown[:, :, :-1] |= across[:, :, 1:]
    return grown


def distances(start: Tensor, free: Tensor, diagonal: bool = False) -> Tensor:
    """Steps from ``start`` to each cell through ``free`` cells, n × h × w; FAR where there is no way."""
    reached = start & free
    steps = torch.where(reached, 0, FAR)
    for step in itertools.count(1):
        grown = dilate(reached, diagonal) & free
        new = grown & ~reached
        if not new.any():
            return steps
        steps[new] = step
        reached = grown
    raise AssertionError("unreachable: the grid is finite")


def on_shortest_paths(a: Tensor, b: Tensor, free: Tensor, diagonal: bool = False) -> Tensor:
    """p with d(a, p) + d(p, b) = d(a, b), for one-cell masks a and b; nothing where b is out of reach."""
    from_a, from_b = distances(a, free, diagonal), distances(b, free, diagonal)
    least = from_a.masked_fill(~b, FAR).amin((1, 2), keepdim=True)
    return (from_a + from_b == least) & (least < FAR)


def query(cell: Tensor, size: int) -> Tensor:
    """One-cell masks at the given rows and columns, n × 2; empty where the cell is off the grid."""
    positions = torch.arange(size)
    return (cell[:, :1] == positions)[:, :, None] & (cell[:, 1:] == positions)[:, None, :]


def shortest_paths(
    n: int = 5_000,
    distance: int = 2,
    seed: int = 0,
    size: int = 32,
    obstacles: float = 0.1,
    diagonal: bool = False,
) -> Pair:
    """Which cells lie on a shortest path between two query points, around obstacles?

    Savarese, thesis, sections 3.3.1 and 3.4.3. Inputs n × 2 × size × size: query points, and obstacles
    (each other cell with probability ``obstacles``); targets n × 1 × size × size. The points are at most
    ``distance`` apart, a diagonal step counting as one; the thesis' curriculum is 2, 4, 6, 8, 10. Paths
    are Manhattan (four neighbors), or move diagonally too with ``diagonal``. Grids without a way between
    the points are drawn again.
    """
    generator = torch.Generator().manual_seed(seed)
    inputs: list[Tensor] = []
    targets: list[Tensor] = []
    missing = n
    while missing > 0:
        a = torch.randint(size, (missing, 2), generator=generator)
        b = a + torch.randint(-distance, distance + 1, (missing, 2), generator=generator)
        start, end = query(a, size), query(b, size)
        walls = (torch.rand(missing, size, size, generator=generator) < obstacles) & ~start & ~end
        paths = on_shortest_paths(start, end, ~walls, diagonal)
        good = paths.any(-1).any(-1) & (a != b).any(1)
        inputs.append(torch.stack([start | end, walls], 1)[good])
        targets.append(paths[good].unsqueeze(1))
        missing -= int(good.sum())
    return torch.cat(inputs).float(), torch.cat(targets).float()


def curriculum(
    n: int = 5_000, distances: Sequence[int] = DISTANCES, seed: int = 0, **options: Any
) -> dict[int, Pair]:
    """A set of n samples for every phase, by the largest distance of its query points, each harder.

    Savarese, thesis, section 3.3.1. ``options`` are those of :func:`shortest_paths`.
    """
    return {
        d: shortest_paths(n, d, seed * len(DISTANCES) + phase, **options) for phase, d in enumerate(distances)
    }


def f1(scores: Tensor, target: Tensor) -> Tensor:
    """F₁ = 2 Σ 1{y = ŷ = 1} / (Σ 1{y = 1} + Σ 1{ŷ = 1}) with ŷ = 1{score > 0}.

    1 where there is nothing to find and nothing found. Thesis, eq. 3.20, which lacks the factor 2: without it
    a perfect prediction would have ½.
    """
    predicted, true = scores > 0, target > 0.5
    total = predicted.sum() + true.sum()
    return torch.where(total > 0, 2 * (predicted & true).sum() / total.clamp(min=1), 1.0)
