"""Gradientless descent on a grid: try one point at each of the radii R, R/2, …, 1 and go to the best.

GLD-Search of Golovin et al., "Gradientless Descent: High-Dimensional Zeroth-Order Optimization" (2020),
https://arxiv.org/abs/1911.06317, with the coordinate variant (CGLD) of Savarese, "Principled Approximation
Methods", section 6.4.3, which moves along one axis at a time.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

GridPoint = tuple[int, ...]
RateGrid = Sequence[Sequence[float]]

PATIENCE = 20
"""Rounds in a row, per axis, without a new point after which a search is over."""


@dataclass
class Search:
    """What a search on a grid tried, in order; the objective is called at most once per point."""

    objective: Callable[..., float]
    grid: RateGrid
    budget: int
    tried: dict[GridPoint, float] = field(default_factory=dict[GridPoint, float])

    def __post_init__(self) -> None:
        if not self.grid or any(len(axis) == 0 for axis in self.grid):
            raise ValueError(
                f"a grid needs axes with values, and this one has the lengths {[*map(len, self.grid)]}"
            )
        if self.budget < 1:
            raise ValueError(f"a search needs at least 1 trial, and trials={self.budget}")
        self.budget = min(self.budget, math.prod(len(axis) for axis in self.grid))

    @property
    def spent(self) -> bool:
        """Whether no trial is left."""
        return len(self.tried) >= self.budget

    @property
    def best(self) -> tuple[float, ...]:
        """The best point so far, as values of the grid."""
        return self.values(min(self.tried, key=self.tried.__getitem__))

    @property
    def value(self) -> float:
        """The objective there."""
        return min(self.tried.values())

    @property
    def trials(self) -> list[tuple[tuple[float, ...], float]]:
        """Every point tried and its value, in order."""
        return [(self.values(point), value) for point, value in self.tried.items()]

    def values(self, point: GridPoint) -> tuple[float, ...]:
        """A point's place on the axes."""
        return tuple(axis[index] for axis, index in zip(self.grid, point, strict=True))

    def ask(self, point: GridPoint) -> float:
        """The objective at a point, infinite if it diverged (NaN) or if no trial is left to find out."""
        if point not in self.tried:
            if self.spent:
                return math.inf
            value = float(self.objective(*self.values(point)))
            self.tried[point] = math.inf if math.isnan(value) else value
        return self.tried[point]


def gld(
    f: Callable[..., float],
    grid: RateGrid,
    coordinate: bool = False,
    *,
    trials: int = 50,
    start: GridPoint | None = None,
    seed: int = 0,
) -> Search:
    """Minimize ``f(*values)`` over a grid by gradientless descent; ``coordinate`` moves along axes in turn.

    ``grid`` has one sequence of values per argument of ``f``, each in rising order; distances are counted in
    grid steps, so axes of learning rates should be logarithmic. ``start`` is a tuple of indices, by default
    drawn at random. The search ends after ``trials`` different points, or when it meets only known ones.
    """
    generator = random.Random(seed)
    search = Search(f, grid, trials)
    shape = [len(axis) for axis in grid]
    here = tuple(generator.randrange(size) for size in shape) if start is None else start
    search.ask(here)
    turn = stale = 0
    while not search.spent and stale < PATIENCE * len(shape):
        axes = [turn % len(shape)] if coordinate else list(range(len(shape)))
        nearby = [_neighbor(here, axes, radius, shape, generator) for radius in _radii(shape, axes)]
        evaluated = len(search.tried)
        here = min([here, *nearby], key=search.ask)
        turn += 1
        stale = stale + 1 if len(search.tried) == evaluated else 0
    return search


def _radii(shape: Sequence[int], axes: Sequence[int]) -> Iterator[float]:
    """R, R/2, … down to 1, where a ball of radius R around any point holds the grid along ``axes``."""
    radius = math.sqrt(sum((shape[axis] - 1) ** 2 for axis in axes))
    while radius > 1:
        yield radius
        radius /= 2
    yield 1.0


def _neighbor(
    here: GridPoint, axes: Sequence[int], radius: float, shape: Sequence[int], generator: random.Random
) -> GridPoint:
    """A point drawn uniformly from the ball around ``here`` along ``axes``, moved onto the grid."""
    direction = [generator.gauss() for _ in axes]
    length = radius * generator.random() ** (1 / len(axes)) / math.hypot(*direction)
    point = list(here)
    for axis, step in zip(axes, direction, strict=True):
        point[axis] = min(max(here[axis] + round(length * step), 0), shape[axis] - 1)
    return tuple(point)
