"""min ½xᵀHx − gᵀx over a box or the simplex by projected gradient with constant momentum, batched."""

import dataclasses
import math

import torch
from torch import Tensor

from torchlift.convex.solvers.bounds import Bounds, in_cache, project, sides

_CHECK = 10  # iterations between looks at which samples have converged


def constant_momentum(condition: float) -> float:
    """(√κ − 1)/(√κ + 1)."""
    root = math.sqrt(max(condition, 1.0))
    return (root - 1) / (root + 1)


@dataclasses.dataclass(frozen=True)
class EigenvalueRange:
    """The least and the largest eigenvalue of H."""

    low: float
    high: float

    @classmethod
    def of(cls, h: Tensor) -> "EigenvalueRange":
        """By one eigenvalue decomposition."""
        values = torch.linalg.eigvalsh(h)
        return cls(float(values[0].clamp(min=0)), float(values[-1]))

    @property
    def condition(self) -> float:
        """κ = L/m, at most 1e16."""
        return self.high / max(self.low, 1e-16 * self.high)


def projected_gradient(
    h: Tensor,
    g: Tensor,
    bounds: Bounds,
    start: Tensor,
    spectrum: EigenvalueRange,
    *,
    tolerance: float,
    steps: int,
    early: bool = False,
) -> tuple[Tensor, Tensor]:
    """x ← P(y − (Hy − g)/L), y extrapolated by min(k/(k + 5), (√κ − 1)/(√κ + 1)); x and which rows are done.

    A row is done when its projected gradient step moves it by less than tolerance·(m/L): then it is
    within the tolerance of the solution. With ``early`` it is enough that the bounds it touches were the
    same at the last two looks. Rows that are done leave the computation.
    """
    beta = constant_momentum(spectrum.condition)
    least = max(tolerance / spectrum.condition, 8 * torch.finfo(g.dtype).eps)
    contraction = torch.eye(len(h), dtype=h.dtype, device=h.device) - h / spectrum.high

    def solve(shift: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return _gradient_rows(contraction, shift, bounds, x, beta, least, steps, early)

    return in_cache(solve, g / spectrum.high, start)


def _gradient_rows(
    contraction: Tensor,
    shift: Tensor,
    bounds: Bounds,
    start: Tensor,
    beta: float,
    least: float,
    steps: int,
    early: bool,
) -> tuple[Tensor, Tensor]:
    """x ← P(y(I − H/L) + g/L): one product a step."""
    result, done = start.clone(), torch.zeros(len(shift), dtype=torch.bool, device=shift.device)
    rows, x, point = torch.arange(len(shift), device=shift.device), start, start
    side = sides(start, bounds)
    for step in range(steps):
        new = project(torch.addmm(shift, point, contraction), bounds)
        if step % _CHECK == _CHECK - 1:
            scale = new.abs().amax(1).clamp(min=torch.finfo(shift.dtype).tiny)
            left = (new - point).abs().amax(1) / scale > least
            before, side = side, sides(new, bounds)
            if early:
                left &= (side != before).any(1)
            done[rows[~left]] = True
            result[rows] = new
            if not bool(left.any()):
                return result, done
            rows, x, new, shift, side = rows[left], x[left], new[left], shift[left], side[left]
        point, x = torch.lerp(x, new, 1 + min(step / (step + 5), beta)), new
    result[rows] = x
    return result, done
