"""Two line searches in place of a grid: for a separable f(a, b) = f₁(a) + f₂(b) they find its minimum.

Savarese, "Principled Approximation Methods", section 6.4.3: AvaGrad's learning rate and ε can be tuned one
after the other, at the cost of n + m − 1 runs in place of n·m. For Adam they cannot.
"""

import math
from collections.abc import Callable

from .zeroth_order import GridPoint, RateGrid, Search


def line_searches(
    f: Callable[..., float],
    grid: RateGrid,
    *,
    start: GridPoint | None = None,
    rounds: int = 1,
    trials: int | None = None,
) -> Search:
    """Minimize ``f(*values)`` along each axis of ``grid`` in turn, the others fixed; ``rounds`` times over.

    The first search starts at the indices ``start``, by default the middle of each axis, and tries the whole
    first axis; points seen before cost nothing. ``trials`` caps the number of different points.
    """
    search = Search(f, grid, math.prod(len(axis) for axis in grid) if trials is None else trials)
    here = tuple(len(axis) // 2 for axis in grid) if start is None else start
    for _ in range(rounds):
        for axis, values in enumerate(grid):
            line = [(*here[:axis], index, *here[axis + 1 :]) for index in range(len(values))]
            here = min(line, key=search.ask)
    return search
