"""min ½xᵀHx − gᵀx over a box by a primal–dual interior point method, batched (Mehrotra 1992).

Its steps hardly depend on how singular H is. They end where complementary slackness says which bounds hold:
pivoting takes over from there.
"""

from functools import partial

import torch
from torch import Tensor

from torchlift.convex.solvers.bounds import Bounds

_STEPS = 60
_BACK = 0.995  # of the way to the first bound
_GAP = 1e-13  # relative complementarity at which the bounds that hold are known


def factor(systems: Tensor) -> Tensor:
    """Cholesky factors; those that rounding makes indefinite get as much on their diagonal as it takes."""
    cholesky, info = torch.linalg.cholesky_ex(systems)
    extra = torch.finfo(systems.dtype).eps * systems.shape[-1]
    while bool((info > 0).any()) and extra < 1:
        bad = systems[info > 0]
        bad.diagonal(dim1=1, dim2=2).mul_(1 + extra)
        cholesky[info > 0], info[info > 0] = torch.linalg.cholesky_ex(bad)
        extra *= 100
    return cholesky


def interior_point(h: Tensor, g: Tensor, bounds: Bounds) -> Tensor:
    """x for every row of g; coordinates whose bound holds are exactly there."""
    low, high = bounds.lo.isfinite().expand(g.shape), bounds.hi.isfinite().expand(g.shape)
    lo, hi = torch.where(low, bounds.lo, 0.0), torch.where(high, bounds.hi, 0.0)
    size = 1 + g.abs().amax(1, keepdim=True)
    x = torch.where(low & high, (lo + hi) / 2, torch.where(low, lo + size, torch.where(high, hi - size, 0.0)))
    below, above = torch.where(low, size, 0.0).expand(g.shape), torch.where(high, size, 0.0).expand(g.shape)
    count = (low.sum(1) + high.sum(1)).clamp(min=1)
    for _ in range(_STEPS):
        a, b = torch.where(low, x - lo, 1.0), torch.where(high, hi - x, 1.0)
        gap = ((a * below).sum(1) + (b * above).sum(1)) / count
        slope = x @ h - g - below + above
        if bool((gap <= _GAP * size[:, 0]).all() & (slope.abs().amax(1) <= _GAP * size[:, 0]).all()):
            break
        system = h + torch.diag_embed(below / a + above / b)
        root = factor(system)
        direction = partial(_newton_direction, root, slope, (a, below), (b, above))
        dx, dz, dy = direction(torch.zeros_like(x), torch.zeros_like(x))
        t = torch.minimum(_room(a, dx, low), _room(b, -dx, high))
        t = torch.minimum(t, torch.minimum(_room(below, dz, low), _room(above, dy, high)))
        then = ((a + t * dx) * (below + t * dz)).where(low, 0).sum(1)
        then = (then + ((b - t * dx) * (above + t * dy)).where(high, 0).sum(1)) / count
        aim = (gap * (then / gap.clamp(min=torch.finfo(g.dtype).tiny)).clamp(0, 1) ** 3)[:, None]
        dx, dz, dy = direction((aim - dx * dz).where(low, 0.0), (aim + dx * dy).where(high, 0.0))
        t = torch.minimum(_room(a, dx, low), _room(b, -dx, high))
        t = _BACK * torch.minimum(t, torch.minimum(_room(below, dz, low), _room(above, dy, high)))
        x, below, above = x + t * dx, below + t * dz, above + t * dy
    x = torch.where(low & (x - lo < below), lo, x)
    return torch.where(high & (hi - x < above), hi, x)


def _newton_direction(
    root: Tensor,
    slope: Tensor,
    lower: tuple[Tensor, Tensor],
    upper: tuple[Tensor, Tensor],
    left: Tensor,
    right: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Newton's (dx, dz, dy) for complementarity a·z → left, b·y → right; lower (a, z), upper (b, y)."""
    (a, below), (b, above) = lower, upper
    p, q = left / a - below, right / b - above
    dx = torch.cholesky_solve((p - q - slope)[:, :, None], root)[:, :, 0]
    return dx, p - below / a * dx, q + above / b * dx


def _room(value: Tensor, move: Tensor, bounded: Tensor) -> Tensor:
    """How far a positive value may move, at most 1/0.995, per row."""
    far = torch.where(bounded & (move < 0), -value / torch.where(move < 0, move, -1.0), torch.inf)
    return far.amin(1, keepdim=True).clamp(max=1 / _BACK)
