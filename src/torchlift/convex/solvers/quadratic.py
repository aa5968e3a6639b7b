"""min ½xᵀHx − gᵀx over a box or the simplex, one H for all samples: the choice among the algorithms.

All are batched over the rows of g. ``gradient``: accelerated projected gradient with constant momentum;
``pivot``: exact active sets. ``auto`` finds the active set by the first in single precision, solves on it by
conjugate gradients, hands what is left to the second, and what cycles there to an interior point method.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from torchlift.convex.solvers.bounds import Bounds, project, sides
from torchlift.convex.solvers.faces import faces
from torchlift.convex.solvers.gradient import EigenvalueRange, projected_gradient
from torchlift.convex.solvers.interior import interior_point
from torchlift.convex.solvers.pivoting import pivot, rows_at_once
from torchlift.convex.solvers.solved import Solved

QuadraticMethod = Literal["auto", "gradient", "pivot"]
_EXCHANGES = 10  # before an interior point is sought
_EXACT = 4096  # largest number of unknowns pivoting is used for unasked


def quadratic(
    h: Tensor,
    g: Tensor,
    bounds: Bounds,
    *,
    method: QuadraticMethod = "auto",
    start: Tensor | None = None,
    tolerance: float | None = None,
    steps: int = 20_000,
) -> Solved:
    """argmin ½xᵀHx − gᵀx within the bounds for every row of g.

    Boxes are solved in the coordinates that give H a unit diagonal, so badly scaled columns cost nothing.
    The residual is that of x = P(x − (Hx − g)) in them, relative to the row's x and g.
    """
    if not (bool(torch.isfinite(h).all()) and bool(torch.isfinite(g).all())):
        raise ValueError("quadratic: H or g holds NaN or infinite values")
    if tolerance is None:
        tolerance = 1e-8 if g.dtype == torch.float64 else 1e-4
    scale = torch.ones_like(h[0]) if bounds.total is not None else h.diagonal().rsqrt()
    scaled = Bounds(bounds.lo / scale, bounds.hi / scale, bounds.total)
    h, g = scale[:, None] * h * scale, g * scale
    spectrum = EigenvalueRange.of(h)
    x = project(torch.zeros_like(g) if start is None else start / scale, scaled)
    if method == "auto":
        x = _auto(h, g, scaled, x, spectrum, tolerance, steps)
    elif method == "gradient":
        x, _ = projected_gradient(h, g, scaled, x, spectrum, tolerance=tolerance, steps=steps)
    elif method == "pivot":
        x, done = pivot(h, g, scaled, x)
        x = _finish(h, g, scaled, x, done, spectrum, tolerance, steps)
    else:
        raise ValueError(f"method: no algorithm {method!r}; known: auto, gradient, pivot")
    left = _residual(h, g, scaled, x, spectrum)
    return Solved(_snap(x * scale, sides(x, scaled), bounds), left <= tolerance, left, steps)


def _residual(h: Tensor, g: Tensor, bounds: Bounds, x: Tensor, spectrum: EigenvalueRange) -> float:
    """The largest relative step of one projected gradient; +inf for anything that is not a number."""
    if len(g) == 0:
        return 0.0
    move = (x - project(x - (x @ h - g) / spectrum.high, bounds)).abs().amax(1)
    size = x.abs().amax(1) + g.abs().amax(1) / spectrum.high
    relative = move / size.clamp(min=torch.finfo(g.dtype).tiny)
    return float(relative.nan_to_num(math.inf).max())


def _snap(x: Tensor, side: Tensor, bounds: Bounds) -> Tensor:
    """x with the coordinates at a bound exactly there, and none beyond: scaling back rounds."""
    if bounds.total is not None:
        return x
    return torch.where(side < 0, bounds.lo, torch.where(side > 0, bounds.hi, project(x, bounds)))


def _auto(
    h: Tensor, g: Tensor, bounds: Bounds, x: Tensor, spectrum: EigenvalueRange, tolerance: float, steps: int
) -> Tensor:
    root = math.sqrt(spectrum.condition)
    if bounds.total is None:
        x = _near(h, g, bounds, x, spectrum, int(min(max(50.0, 10 * root), 500)))
        x, done = faces(h, g, bounds, x, spectrum, tolerance=tolerance)
    else:
        few = int(min(40 * root, 1000))
        x, done = projected_gradient(h, g, bounds, x, spectrum, tolerance=tolerance, steps=min(steps, few))
    if len(h) <= _EXACT and not bool(done.all()):
        x[~done], done[~done] = pivot(h, g[~done], bounds, x[~done], _EXCHANGES)
    return _finish(h, g, bounds, x, done, spectrum, tolerance, steps)


def _near(h: Tensor, g: Tensor, bounds: Bounds, x: Tensor, spectrum: EigenvalueRange, steps: int) -> Tensor:
    """The bounds that hold, most likely, in single precision; the start where that overflows."""
    single = bounds.to(torch.float32)
    near, _ = projected_gradient(
        h.float(), g.float(), single, x.float(), spectrum, tolerance=1e-3, steps=steps, early=True
    )
    near = torch.where(near.isfinite().all(1, keepdim=True), near, x.float())
    return _snap(near.to(x), sides(near, single), bounds)


def _finish(
    h: Tensor,
    g: Tensor,
    bounds: Bounds,
    x: Tensor,
    done: Tensor,
    spectrum: EigenvalueRange,
    tolerance: float,
    steps: int,
) -> Tensor:
    """Rows left over: on a box an interior point and pivoting from there, else gradient steps."""
    left = ~done
    if not bool(left.any()):
        return x
    if bounds.total is not None or len(h) > _EXACT:
        x[left], _ = projected_gradient(
            h, g[left], bounds, x[left], spectrum, tolerance=tolerance, steps=steps
        )
        return x
    near = torch.cat([interior_point(h, gs, bounds) for gs in g[left].split(rows_at_once(h))])
    exact, done = pivot(h, g[left], bounds, near)
    x[left] = torch.where(done[:, None], exact, near)
    return x
