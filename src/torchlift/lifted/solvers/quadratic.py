"""min ½xᵀHx − gᵀx over a box or the simplex, one H for all samples: four algorithms.

All are batched over the rows of g. ``gradient``: accelerated projected gradient with constant momentum;
``coordinate``: cyclic sweeps (HALS); ``admm``: splitting with one cached factor; ``pivot``: exact active
sets. ``auto`` runs the first, hands what is left to the last, and what cycles there to a
primal active-set method.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from torchlift.lifted.activations.simplex import project_simplex
from torchlift.lifted.solvers.active import active_set
from torchlift.lifted.solvers.descent import constant_momentum
from torchlift.lifted.solvers.pivoting import Bounds, pivot, rows_at_once

Method = Literal["auto", "gradient", "coordinate", "admm", "pivot"]
_CHECK = 10  # iterations between looks at which samples have converged
_CACHE = 2**17  # entries of a block of rows
_EXACT = 1024  # largest number of unknowns pivoting is used for unasked


def project(x: Tensor, bounds: Bounds) -> Tensor:
    """The nearest feasible point."""
    if bounds.total is not None:
        return bounds.total * project_simplex(x / bounds.total)
    return x.clamp(bounds.lo, bounds.hi)


def projected_gradient(
    h: Tensor, g: Tensor, bounds: Bounds, start: Tensor, *, tolerance: float, steps: int
) -> tuple[Tensor, Tensor]:
    """Constant-momentum projected gradient; returns x and which rows reached the tolerance.

    A row is done when its projected gradient step moves it by less than tolerance·(m/L): then it is
    within the tolerance of the solution. Rows that are done leave the computation, and they are taken
    some hundred at a time, so that everything but H stays in the processor's cache.
    """
    spectrum = torch.linalg.eigvalsh(h)
    low, high = float(spectrum[0].clamp(min=0)), float(spectrum[-1])
    beta = constant_momentum(high / low) if low > 0 else 1.0
    least = max(tolerance * low / high, 8 * torch.finfo(g.dtype).eps)
    contraction = torch.eye(len(h), dtype=h.dtype, device=h.device) - h / high
    size = max(1, _CACHE // len(h)) if g.device.type == "cpu" else max(1, len(g))
    parts = [
        _gradient_rows(contraction, gs / high, bounds, xs, beta, least, steps)
        for gs, xs in zip(g.split(size), start.split(size), strict=True)
    ]
    return torch.cat([x for x, _ in parts]), torch.cat([done for _, done in parts])


def _gradient_rows(
    contraction: Tensor, shift: Tensor, bounds: Bounds, start: Tensor, beta: float, least: float, steps: int
) -> tuple[Tensor, Tensor]:
    """x ← P(y(I − H/L) + g/L), y extrapolated: one product a step."""
    result, done = start.clone(), torch.zeros(len(shift), dtype=torch.bool, device=shift.device)
    rows, x, point = torch.arange(len(shift), device=shift.device), start, start
    for step in range(steps):
        new = project(torch.addmm(shift, point, contraction), bounds)
        if step % _CHECK == _CHECK - 1:
            scale = new.abs().amax(1).clamp(min=torch.finfo(shift.dtype).tiny)
            left = (new - point).abs().amax(1) / scale > least
            done[rows[~left]] = True
            result[rows] = new
            if not bool(left.any()):
                return result, done
            rows, x, new, shift = rows[left], x[left], new[left], shift[left]
        point, x = torch.lerp(x, new, 1 + beta), new
    result[rows] = x
    return result, done


def coordinate_descent(
    h: Tensor, g: Tensor, bounds: Bounds, start: Tensor, *, tolerance: float, steps: int
) -> Tensor:
    """Cyclic sweeps x_j ← clip(x_j − (Hx − g)_j/H_jj): monotone; boxes only."""
    if bounds.total is not None:
        raise ValueError("method 'coordinate' keeps to boxes; for the simplex use gradient, admm or pivot")
    x = start.mT.contiguous()  # one row per coordinate: the sweep reads whole rows
    lo, hi, target = bounds.lo.expand(len(h)), bounds.hi.expand(len(h)), g.mT
    for _ in range(steps):
        before = x.clone()
        for j in range(len(h)):
            slope = h[j] @ x - target[j]
            x[j] = (x[j] - slope / h[j, j]).clamp(float(lo[j]), float(hi[j]))
        if float((x - before).abs().max()) <= tolerance * float(x.abs().max()):
            break
    return x.mT.contiguous()


def admm(h: Tensor, g: Tensor, bounds: Bounds, start: Tensor, *, tolerance: float, steps: int) -> Tensor:
    """x = (H + rI)⁻¹(g + r(z − w)), z = P(x + w), w ← w + x − z, with r = √(mL), relaxed by 1.6."""
    spectrum = torch.linalg.eigvalsh(h)
    r = math.sqrt(max(float(spectrum[0]), 1e-12 * float(spectrum[-1])) * float(spectrum[-1]))
    eye = torch.eye(len(h), dtype=h.dtype, device=h.device)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(h + r * eye))
    z, dual = start, torch.zeros_like(start)
    for _ in range(steps):
        x = (g + r * (z - dual)) @ inverse
        relaxed = torch.lerp(z, x, 1.6)
        new = project(relaxed + dual, bounds)
        dual = dual + relaxed - new
        gap = torch.maximum((new - x).abs().max(), (new - z).abs().max())
        z = new
        if float(gap) <= tolerance * float(z.abs().max()):
            break
    return z


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
    x = project(torch.zeros_like(g) if start is None else start / scale, scaled)
    if method == "auto":
        x = _auto(h, g, scaled, x, tolerance, steps)
    elif method == "gradient":
        x, _ = projected_gradient(h, g, scaled, x, tolerance=tolerance, steps=steps)
    elif method == "coordinate":
        x = coordinate_descent(h, g, scaled, x, tolerance=tolerance / 100, steps=steps)
    elif method == "admm":
        x = admm(h, g, scaled, x, tolerance=tolerance / 100, steps=steps)
    elif method == "pivot":
        x, done = pivot(h, g, scaled, x)
        x = _finish(h, g, scaled, x, done, tolerance, steps)
    else:
        raise ValueError(f"method: no algorithm {method!r}; known: auto, gradient, coordinate, admm, pivot")
    return x * scale


def _auto(h: Tensor, g: Tensor, bounds: Bounds, x: Tensor, tolerance: float, steps: int) -> Tensor:
    if g.dtype == torch.float64 and g.numel() > _CACHE:
        x = _single_precision(h, g, bounds, x)
    x, done = projected_gradient(h, g, bounds, x, tolerance=tolerance, steps=min(steps, _first(h)))
    if len(h) <= _EXACT and not bool(done.all()):
        x[~done], done[~done] = pivot(h, g[~done], bounds, x[~done])
    return _finish(h, g, bounds, x, done, tolerance, steps)


def _single_precision(h: Tensor, g: Tensor, bounds: Bounds, x: Tensor) -> Tensor:
    """The first digits at half the price; the start itself where single precision overflows."""
    single = Bounds(bounds.lo.float(), bounds.hi.float(), bounds.total)
    near, _ = projected_gradient(h.float(), g.float(), single, x.float(), tolerance=1e-3, steps=100)
    near = torch.where(near.isfinite().all(1, keepdim=True), near.double(), x)
    return project(near, bounds)


def _first(h: Tensor) -> int:
    """Gradient steps worth taking before an exact method: a pivot costs a row as much as p/6 of them."""
    spectrum = torch.linalg.eigvalsh(h)
    condition = float(spectrum[-1] / spectrum[0].clamp(min=torch.finfo(h.dtype).eps * spectrum[-1]))
    return int(min(40 * math.sqrt(condition), 1000))


def _finish(
    h: Tensor, g: Tensor, bounds: Bounds, x: Tensor, done: Tensor, tolerance: float, steps: int
) -> Tensor:
    """Rows left over: gradient steps to their active set, then, on a box, an active-set method to the end."""
    if bool(done.all()):
        return x
    left = ~done
    start, done[left] = projected_gradient(h, g[left], bounds, x[left], tolerance=tolerance, steps=steps)
    x[left] = start
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
