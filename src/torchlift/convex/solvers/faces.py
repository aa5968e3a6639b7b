"""Box least squares by conjugate gradients on faces: what projected gradients leave to do, at a better rate.

On the face where the coordinates at their bounds are fixed, ½xᵀHx − gᵀx has no constraints, and H restricted
to the free coordinates is better conditioned than H. Conjugate gradients solve it for all rows at once, in
single precision; the residuals that correct and check them are in the data's own.
"""

import torch
from torch import Tensor

from torchlift.convex.solvers.bounds import Bounds, exchange, in_cache, project, sides, violations
from torchlift.convex.solvers.gradient import EigenvalueRange

_ROUNDS = 10
_STEPS = 100
_LOOK = 4  # conjugate gradient steps between looks at which rows are done
_KEEP = 0.75  # share of rows still at work above which the others are carried along
_REDUCTION = 1e-5  # of the residual, in one round


def faces(
    h: Tensor, g: Tensor, bounds: Bounds, start: Tensor, spectrum: EigenvalueRange, *, tolerance: float
) -> tuple[Tensor, Tensor]:
    """argmin ½xᵀHx − gᵀx over lo ≤ x ≤ hi from ``start``; returns x and which rows are solved.

    A round solves for the free coordinates and then exchanges every coordinate that violates its sign
    condition, as block principal pivoting does. A row is solved when no slope on its face exceeds
    tolerance·m·max|x|, which puts it within the tolerance of the solution, and nothing is to exchange.
    """
    steep = max(tolerance * spectrum.low, 8 * torch.finfo(g.dtype).eps * spectrum.high)
    single = h.float()

    def solve(gs: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return _face_rows(h, single, gs, bounds, x, tolerance, steep)

    return in_cache(solve, g, start)


def _face_rows(
    h: Tensor, single: Tensor, g: Tensor, bounds: Bounds, start: Tensor, width: float, steep: float
) -> tuple[Tensor, Tensor]:
    result, done = start.clone(), torch.zeros(len(g), dtype=torch.bool, device=g.device)
    rows, x, side = torch.arange(len(g), device=g.device), start, sides(start, bounds)
    for _ in range(_ROUNDS):
        slope = x @ h - g
        scale = x.abs().amax(1, keepdim=True).clamp(min=torch.finfo(g.dtype).tiny)
        wrong = violations(x, slope, side, bounds, width * scale, steep * scale)
        uneven = torch.where(side == 0, slope.abs(), 0.0).amax(1) > steep * scale[:, 0]
        result[rows] = project(x, bounds)
        left = uneven | wrong.any(1)
        done[rows[~left]] = True
        if not bool(left.any()):
            break
        rows, g, x, slope, wrong, scale = rows[left], g[left], x[left], slope[left], wrong[left], scale[left]
        side = exchange(x, side[left], wrong, bounds)
        x = torch.where(side < 0, bounds.lo, torch.where(side > 0, bounds.hi, x))
        moved = wrong.any(1)
        slope[moved] = x[moved] @ h - g[moved]
        size = slope.abs().amax(1, keepdim=True)
        enough = (steep / 2 * scale / size).float()
        move = size * _face_step(single, (slope / size).float(), (side == 0).float(), enough).to(x.dtype)
        x = x - move.where(move.isfinite().all(1, keepdim=True), 0.0)
    return result, done


def _face_step(h: Tensor, slope: Tensor, free: Tensor, enough: Tensor) -> Tensor:
    """d with (Hd)_F = slope_F, and 0 elsewhere, F the free coordinates of a row: conjugate gradients."""
    result, rows = torch.zeros_like(slope), torch.arange(len(slope), device=slope.device)
    x, residual = torch.zeros_like(slope), slope * free
    direction = residual.clone()
    energy = residual.square().sum(1, keepdim=True)
    rounding = torch.finfo(slope.dtype).eps
    stop, tiny = torch.maximum(_REDUCTION**2 * energy, enough.square()), torch.finfo(slope.dtype).tiny
    for step in range(_STEPS):
        image = (direction @ h).mul_(free)
        bend = (direction * image).sum(1, keepdim=True)
        flat = bend <= rounding * direction.square().sum(1, keepdim=True)  # lost in single precision: stay
        rate = torch.where(flat, 0.0, energy / bend.clamp(min=tiny))
        x.addcmul_(rate, direction)
        residual.addcmul_(rate, image, value=-1)
        following = residual.square().sum(1, keepdim=True)
        direction.mul_(following / energy.clamp(min=tiny)).add_(residual)
        energy = following
        if step % _LOOK == _LOOK - 1:
            left = (energy > stop)[:, 0]
            if not bool(left.any()):
                break
            if float(left.sum()) > _KEEP * len(left):
                continue
            result[rows] = x
            rows, x, residual, direction = rows[left], x[left], residual[left], direction[left]
            energy, stop, free = energy[left], stop[left], free[left]
    result[rows] = x
    return result
