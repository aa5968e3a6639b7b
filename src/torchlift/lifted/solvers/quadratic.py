"""min ½xᵀHx − gᵀx over a box or the simplex, one H for all samples: the choice among the algorithms.

All are batched over the rows of g. ``gradient``: accelerated projected gradient with constant momentum;
``coordinate``: cyclic sweeps (HALS); ``admm``: splitting with one cached factor; ``pivot``: exact active
sets. ``auto`` finds the active set by the first in single precision, solves on it by conjugate gradients,
hands what is left to the last, and what cycles there to a primal active-set method.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from torchlift.lifted.solvers.active import active_set
from torchlift.lifted.solvers.bounds import Bounds, project, sides
from torchlift.lifted.solvers.faces import faces
from torchlift.lifted.solvers.gradient import Spectrum, projected_gradient
from torchlift.lifted.solvers.pivoting import pivot, rows_at_once
from torchlift.lifted.solvers.sweeps import admm, coordinate_descent

Method = Literal["auto", "gradient", "coordinate", "admm", "pivot"]
_EXACT = 1024  # largest number of unknowns pivoting is used for unasked


def quadratic(
    h: Tensor,
    g: Tensor,
    bounds: Bounds,
    *,
    method: Method = "auto",
    start: Tensor | None = None,
    tolerance: float | None = None,
    steps: int = 20_000,
) -> Tensor:
    """argmin ½xᵀHx − gᵀx within the bounds for every row of g.

    Boxes are solved in the coordinates that give H a unit diagonal, so badly scaled columns cost nothing.
    """
    if tolerance is None:
        tolerance = 1e-8 if g.dtype == torch.float64 else 1e-4
    scale = torch.ones_like(h[0]) if bounds.total is not None else h.diagonal().rsqrt()
    scaled = Bounds(bounds.lo / scale, bounds.hi / scale, bounds.total)
    h, g = scale[:, None] * h * scale, g * scale
    spectrum = Spectrum.of(h)
    x = project(torch.zeros_like(g) if start is None else start / scale, scaled)
    if method == "auto":
        x = _auto(h, g, scaled, x, spectrum, tolerance, steps)
    elif method == "gradient":
        x, _ = projected_gradient(h, g, scaled, x, spectrum, tolerance=tolerance, steps=steps)
    elif method == "coordinate":
        x = coordinate_descent(h, g, scaled, x, tolerance=tolerance / 100, steps=steps)
    elif method == "admm":
        x = admm(h, g, scaled, x, spectrum, tolerance=tolerance / 100, steps=steps)
    elif method == "pivot":
        x, done = pivot(h, g, scaled, x)
        x = _finish(h, g, scaled, x, done, spectrum, tolerance, steps)
    else:
        raise ValueError(f"method: no algorithm {method!r}; known: auto, gradient, coordinate, admm, pivot")
    return _snap(x * scale, sides(x, scaled), bounds)


def _snap(x: Tensor, side: Tensor, bounds: Bounds) -> Tensor:
    """x with the coordinates at a bound exactly there, and none beyond: scaling back rounds."""
    if bounds.total is not None:
        return x
    return torch.where(side < 0, bounds.lo, torch.where(side > 0, bounds.hi, project(x, bounds)))


def _auto(
    h: Tensor, g: Tensor, bounds: Bounds, x: Tensor, spectrum: Spectrum, tolerance: float, steps: int
) -> Tensor:
    root = math.sqrt(spectrum.condition)
    if bounds.total is None:
        x = _near(h, g, bounds, x, spectrum, int(min(max(50.0, 10 * root), 500)))
        x, done = faces(h, g, bounds, x, spectrum, tolerance=tolerance)
    else:
        few = int(min(40 * root, 1000))
        x, done = projected_gradient(h, g, bounds, x, spectrum, tolerance=tolerance, steps=min(steps, few))
    if len(h) <= _EXACT and not bool(done.all()):
        x[~done], done[~done] = pivot(h, g[~done], bounds, x[~done])
    return _finish(h, g, bounds, x, done, spectrum, tolerance, steps)


def _near(h: Tensor, g: Tensor, bounds: Bounds, x: Tensor, spectrum: Spectrum, steps: int) -> Tensor:
    """The bounds that hold, most likely, in single precision; the start where that overflows."""
    single = bounds.to(torch.float32)
    near, _ = projected_gradient(
        h.float(), g.float(), single, x.float(), spectrum, tolerance=1e-3, steps=steps, settle=True
    )
    near = torch.where(near.isfinite().all(1, keepdim=True), near, x.float())
    return _snap(near.to(x), sides(near, single), bounds)


def _finish(
    h: Tensor,
    g: Tensor,
    bounds: Bounds,
    x: Tensor,
    done: Tensor,
    spectrum: Spectrum,
    tolerance: float,
    steps: int,
) -> Tensor:
    """Rows left over: gradient steps to their active set, then, on a box, an active-set method to the end."""
    if bool(done.all()):
        return x
    left = ~done
    x[left], done[left] = projected_gradient(
        h, g[left], bounds, x[left], spectrum, tolerance=tolerance, steps=steps
    )
    left = ~done
    if len(h) <= _EXACT and bounds.total is None and bool(left.any()):
        size = rows_at_once(h)
        x[left] = torch.cat(
            [
                active_set(h, gs, bounds.lo, bounds.hi, xs)
                for gs, xs in zip(g[left].split(size), x[left].split(size), strict=True)
            ]
        )
    return x
