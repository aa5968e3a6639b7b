"""A primal active-set method for box-constrained quadratics, batched: monotone and finite.

min ½xᵀHx − gᵀx over lo ≤ x ≤ hi, one H for all rows of g (Lawson & Hanson 1974, chapter 23).
"""

import torch
from torch import Tensor


def masked_system(h: Tensor, free: Tensor) -> Tensor:
    """H on the free coordinates of every row and the identity elsewhere, one matrix per row."""
    pair = free[:, :, None] & free[:, None, :]
    return torch.where(pair, h, torch.eye(len(h), dtype=h.dtype, device=h.device))


def active_set(h: Tensor, g: Tensor, lo: Tensor, hi: Tensor, start: Tensor) -> Tensor:
    """Go to the minimiser over the free coordinates, or to the first bound on the way, which then holds.

    Where that minimiser is reached, the held coordinate whose slope points inside most is freed; none: done.
    """
    result, rows, x = start.clone(), torch.arange(len(g), device=g.device), start
    free = (x > lo) & (x < hi)
    for _ in range(4 * g.shape[1] + 50):
        move = torch.where(free, _minimiser(h, g[rows], x, free) - x, 0.0)
        length = _longest(x, move, lo, hi)
        reached = length.amin(1) >= 1
        alpha = length.amin(1, keepdim=True).clamp(max=1)
        stuck = (length <= alpha) & ~reached[:, None]
        bound = torch.where(move < 0, lo, hi)
        x = torch.where(stuck, bound, x + torch.where(free, alpha * move, 0.0))
        free = free & ~stuck
        gain = _gain(h, g[rows], x, free, lo, hi) * reached[:, None]
        best = gain.argmax(1, keepdim=True)
        free = free.scatter(1, best, free.gather(1, best) | (gain.gather(1, best) > 0))
        result[rows] = x
        left = ~reached | (gain.amax(1) > 0)
        if not bool(left.any()):
            break
        rows, x, free = rows[left], x[left], free[left]
    return result


def _minimiser(h: Tensor, g: Tensor, x: Tensor, free: Tensor) -> Tensor:
    fixed = torch.where(free, 0.0, x)
    right = torch.where(free, g - fixed @ h, fixed)[:, :, None]
    return torch.cholesky_solve(right, torch.linalg.cholesky(masked_system(h, free)))[:, :, 0]


def _longest(x: Tensor, move: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
    """The step length at which each coordinate meets its bound."""
    room = torch.where(move < 0, lo - x, hi - x)
    return torch.where(move == 0, torch.inf, room / torch.where(move == 0, 1.0, move))


def _gain(h: Tensor, g: Tensor, x: Tensor, free: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
    """How steeply the objective falls when a held coordinate moves inside; 0 where it does not."""
    slope = x @ h - g
    inward = torch.where(x <= lo, -slope, torch.where(x >= hi, slope, 0.0))
    rounding = 100 * torch.finfo(x.dtype).eps * (x.abs().amax(1) + g.abs().amax(1))[:, None]
    return torch.where(free | (inward <= rounding), 0.0, inward)
