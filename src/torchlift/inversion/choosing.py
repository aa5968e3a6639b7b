"""α from the noise (Morozov's discrepancy principle) or from the corner of the L-curve (Hansen 1992)."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import Tensor

from torchlift.convex.functions import Function, reweighted
from torchlift.inversion.result import InversionError

_DECADES = 12
_BISECTIONS = 12
_SAME = 1e-3


@dataclasses.dataclass(frozen=True, eq=False)
class Point:
    """One α with what it gave; fidelity and J summed over samples, J without its α."""

    alpha: float
    x: Tensor
    fidelity: float
    size: float


Solver = Callable[[Function, Tensor | None], Point]
"""(function with its α, start or None) → point."""


def discrepancy(solver: Solver, reg: Function, target: float, first: float) -> float:
    """The largest α with fidelity ≤ target, by bisection on log α with warm starts."""
    point = solver(reweighted(reg, first), None)
    factor = 10.0 if point.fidelity <= target else 0.1
    for _ in range(_DECADES):
        other = solver(reweighted(reg, factor * point.alpha), point.x)
        if (other.fidelity > target) == (factor > 1):
            break
        if abs(other.fidelity - point.fidelity) <= _SAME * point.fidelity:
            raise _unreachable(target, other, factor > 1)
        point = other
    else:
        raise _unreachable(target, point, factor > 1)
    low, high = (point, other) if factor > 1 else (other, point)
    below, above = low, high.alpha
    for _ in range(_BISECTIONS):
        middle = solver(reweighted(reg, math.sqrt(below.alpha * above)), below.x)
        if middle.fidelity <= target:
            below = middle
        else:
            above = middle.alpha
        if above / below.alpha < 1.01:
            break
    return below.alpha


def _unreachable(target: float, last: Point, large: bool) -> InversionError:
    noise = math.sqrt(target)
    if large:
        return InversionError(
            f"tl.invert: noise {noise:.3g} is too large for this y: alpha up to {last.alpha:.1g} "
            f"keeps the fidelity at {last.fidelity:.3g} <= {target:.3g}; pass alpha, or a smaller noise"
        )
    return InversionError(
        f"tl.invert: no alpha reaches noise {noise:.3g}: the fidelity stays at {last.fidelity:.3g} > "
        f"{target:.3g} down to alpha {last.alpha:.1g}; pass a larger noise"
    )


def corner(solver: Solver, reg: Function, first: float) -> float:
    """The α of greatest curvature of (log ‖fidelity‖, log J), over half decades from large to small.

    A corner parts a steep branch (small α: J falls, the fidelity hardly moves) from a flat one (large α).
    Where there are not both, the curve says nothing about α, and that is an error.
    """
    alphas = [first * 10 ** (k / 2) for k in range(4, -9, -1)]
    points: list[Point] = []
    for alpha in alphas:
        points.append(solver(reweighted(reg, alpha), points[-1].x if points else None))
    kept = [p for p in points if p.fidelity > 0 and p.size > 0]
    curve = [(math.log(p.fidelity) / 2, math.log(p.size)) for p in kept]
    moves = [(a[0] - b[0], b[1] - a[1]) for a, b in pairwise(curve)]
    bends = [_curvature(*curve[k - 1 : k + 2]) for k in range(1, len(curve) - 1)]
    sharp = [
        (bend, 1 + k)
        for k, bend in enumerate(bends)
        if bend > 0 and _falls_faster(moves[: k + 1]) and _steep(moves[k + 1 :])
    ]
    if not sharp:
        raise InversionError(
            f"tl.invert: the L-curve has no corner for alpha from {alphas[-1]:.1g} to {alphas[0]:.1g}; give "
            "alpha, or noise= for the discrepancy principle"
        )
    return kept[max(sharp)[1]].alpha


def _falls_faster(moves: Sequence[tuple[float, float]]) -> bool:
    """Whether, at some α above, the fidelity falls faster than J grows as α falls."""
    return any(fit > max(size, _SAME) for fit, size in moves)


def _steep(moves: Sequence[tuple[float, float]]) -> bool:
    """Whether, at some α below, J grows faster than the fidelity falls as α falls."""
    return any(size > max(fit, _SAME) for fit, size in moves)


def _curvature(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> float:
    """Menger's curvature of three points, positive where the curve bends around the lower left."""
    sides = [math.dist(a, b), math.dist(b, c), math.dist(a, c)]
    area = (b[0] - a[0]) * (c[1] - a[1]) - (c[0] - a[0]) * (b[1] - a[1])
    return -2 * area / max(math.prod(sides), 1e-300)
