"""Block principal pivoting: exact box and simplex least squares, batched (Kim & Park 2011)."""

import torch
from torch import Tensor

from torchlift.convex.solvers.bounds import Bounds, exchange, sides, violations
from torchlift.convex.solvers.interior import factor

_PATIENCE = 3  # full exchanges allowed without progress before Murty's single exchange
_CHUNK = 2**24  # entries of the batched systems in memory at once


def pivot(h: Tensor, g: Tensor, bounds: Bounds, start: Tensor, exchanges: int = 30) -> tuple[Tensor, Tensor]:
    """argmin ½xᵀHx − gᵀx within the bounds, for every row of g: H positive definite, shared.

    Guess which coordinates sit at a bound, solve for the free ones, exchange every coordinate that
    violates its sign condition; after three exchanges without progress only the last one (Murty's rule).
    ``start`` supplies the first guess. Also returns which rows are solved: where H is nearly singular some
    may still be cycling after the last exchange.
    """
    pieces = [
        _pivot(h, gs, bounds, xs, exchanges)
        for gs, xs in zip(g.split(rows_at_once(h)), start.split(rows_at_once(h)), strict=True)
    ]
    return torch.cat([x for x, _ in pieces]), torch.cat([done for _, done in pieces])


def masked_system(h: Tensor, free: Tensor) -> Tensor:
    """H on the free coordinates of every row and the identity elsewhere, one matrix per row."""
    pair = free[:, :, None] & free[:, None, :]
    return torch.where(pair, h, torch.eye(len(h), dtype=h.dtype, device=h.device))


def rows_at_once(h: Tensor) -> int:
    """How many systems of the size of H are in memory at once."""
    return max(1, _CHUNK // h.shape[0] ** 2)


def _pivot(h: Tensor, g: Tensor, bounds: Bounds, start: Tensor, exchanges: int) -> tuple[Tensor, Tensor]:
    n, p = g.shape
    result = start.clone()
    rows = torch.arange(n, device=g.device)
    side = sides(start, bounds)
    fewest = torch.full((n,), p + 1, device=g.device)
    patience = torch.full((n,), _PATIENCE, device=g.device)
    for _ in range(exchanges):
        x, slope = _solve_free(h, g[rows], side, bounds)
        wrong = _violations(x, slope, side, bounds)
        count = wrong.sum(1)
        result[rows] = torch.minimum(torch.maximum(x, bounds.lo), bounds.hi)
        left = count > 0
        if not bool(left.any()):
            return result, torch.ones(n, dtype=torch.bool, device=g.device)
        rows, side, wrong, count, x = rows[left], side[left], wrong[left], count[left], x[left]
        fewest, patience = fewest[left], patience[left]
        better = count < fewest
        patience = torch.where(better, _PATIENCE, patience - 1)
        fewest = torch.minimum(fewest, count)
        single = torch.zeros_like(wrong)
        last = p - 1 - wrong.flip(1).to(torch.int8).argmax(1)
        single[torch.arange(len(rows), device=g.device), last] = True
        change = torch.where((patience >= 0)[:, None], wrong, single)
        side = exchange(x, side, change, bounds)
    done = torch.ones(n, dtype=torch.bool, device=g.device)
    done[rows] = False
    return result, done


def _solve_free(h: Tensor, g: Tensor, side: Tensor, bounds: Bounds) -> tuple[Tensor, Tensor]:
    """Fixed coordinates at their bounds, free ones optimal; and the slope Hx − g + ν there."""
    if bounds.total is not None:
        empty = (side == 0).sum(1) == 0  # Σx = total needs one free coordinate: the steepest
        side[empty, g[empty].argmax(1)] = 0
    free = side == 0
    fixed = torch.where(free, 0.0, torch.where(side < 0, bounds.lo, bounds.hi))
    right = torch.where(free, g - fixed @ h, 0.0)[:, :, None]
    root = factor(masked_system(h, free))
    if bounds.total is None:
        x = torch.where(free, torch.cholesky_solve(right, root)[:, :, 0], fixed)
        return x, x @ h - g
    both = torch.cholesky_solve(torch.cat([right, free[:, :, None].to(h.dtype)], 2), root)
    plain, ones = torch.where(free[:, :, None], both, 0.0).unbind(2)
    nu = (plain.sum(1) + fixed.sum(1) - bounds.total) / ones.sum(1)
    x = fixed + plain - nu[:, None] * ones
    return x, x @ h - g + nu[:, None]


def _violations(x: Tensor, slope: Tensor, side: Tensor, bounds: Bounds) -> Tensor:
    """Sign conditions that fail by more than rounding."""
    eps = 100 * torch.finfo(x.dtype).eps
    size = x.abs().amax(1, keepdim=True)
    width = eps * size.clamp(min=torch.finfo(x.dtype).tiny)
    return violations(x, slope, side, bounds, width, eps * (slope.abs().amax(1, keepdim=True) + size))
