"""Weights on a grid, column by column, each error made up for by the columns that follow.

    U = chol(H⁻¹) (upper);   q_j = s · clamp(round(w_j / s)),   e = (w_j − q_j) / U_jj,   w_k ← w_k − e U_jk for k > j

Columns go in the order of their diagonal of H, the largest first. Steps s are one for each row, or for each group of
columns of a row. With a ``sparsity``, in every block of 128 columns the entries with the least w_j² / U_jj² become
zero in the same pass.
"""

import dataclasses

import torch
from torch import Tensor

BLOCK = 128
FRACTIONS = 48


@dataclasses.dataclass(frozen=True, eq=False)
class Gridded:
    """Weights on a grid: W = step · levels."""

    levels: Tensor
    """(r, n), whole numbers as floats"""
    step: Tensor
    """(r, n / group)"""

    @property
    def weight(self) -> Tensor:
        """step · levels."""
        return self.levels * widened(self.step, self.levels.shape[1])


def widened(step: Tensor, columns: int) -> Tensor:
    """A step for every column."""
    return step.repeat_interleave(columns // step.shape[1], 1) if step.shape[1] > 1 else step


def top_level(bits: int) -> int:
    """The largest level of signed whole numbers of so many bits, the same on both sides of zero."""
    return 2 ** (bits - 1) - 1


def steps_for(weight: Tensor, bits: int, importance: Tensor, group: int | None = None) -> Tensor:
    """The step s of each row (or group) with the least Σ h_j (w_j − q_j)², over clipped ranges, then by least squares.

    ``weight`` (r, n), ``importance`` (n,): the diagonal of H.
    """
    rows, columns = weight.shape
    width = group or columns
    w = weight.reshape(rows, -1, width)
    h = importance.reshape(1, -1, width).clamp(min=torch.finfo(weight.dtype).tiny)
    top = top_level(bits)
    largest = w.abs().amax(-1)
    best = torch.full_like(largest, torch.inf)
    chosen = torch.zeros_like(largest)
    low = 0.1 if bits < 4 else 0.4
    for fraction in torch.linspace(low, 1.0, FRACTIONS, dtype=torch.float64).tolist():
        step = largest * (fraction / top)
        levels = nearest(w, step[..., None], top)
        square = (h * w * levels).sum(-1) / (h * levels.square()).sum(-1).clamp(min=torch.finfo(w.dtype).tiny)
        step = torch.where(square > 0, square, step)
        error = (h * (w - step[..., None] * nearest(w, step[..., None], top)).square()).sum(-1)
        better = error < best
        best, chosen = torch.where(better, error, best), torch.where(better, step, chosen)
    return chosen


def nearest(weight: Tensor, step: Tensor, top: float) -> Tensor:
    """clamp(round(w / s)); 0 where s is 0."""
    return torch.where(step > 0, weight / step, 0.0).round().clamp(-top, top)


def upper_factor(hessian: Tensor) -> Tensor:
    """U, upper triangular, with UᵀU = H⁻¹: the inverse of R in H = R Rᵀ."""
    r = torch.linalg.cholesky(hessian.flip(0, 1)).flip(0, 1)
    identity = torch.eye(len(r), dtype=r.dtype, device=r.device)
    return torch.linalg.solve_triangular(r, identity, upper=True)


def feedback(
    weight: Tensor,
    hessian: Tensor,
    *,
    step: Tensor | None = None,
    bits: int | None = None,
    sparsity: float = 0.0,
    order: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(Ŵ, kept): one pass over the columns of W (r, n) with a grid, a mask, or both. ``step``: (r, n) or (r, 1)."""
    rows, columns = weight.shape
    order = hessian.diagonal().argsort(descending=True, stable=True) if order is None else order
    upper = upper_factor(hessian[order][:, order])
    w = weight.to(hessian)[:, order].clone()
    s = None if step is None else step.to(w).expand(rows, columns)[:, order]
    top = top_level(bits) if bits else 0
    kept = torch.ones(rows, columns, dtype=torch.bool, device=w.device)
    for start in range(0, columns, BLOCK):
        stop = min(start + BLOCK, columns)
        block, own = w[:, start:stop], upper[start:stop, start:stop]
        if sparsity > 0:
            kept[:, start:stop] = spared(block, own.diagonal(), sparsity)
        errors = torch.empty_like(block)
        for j in range(stop - start):
            value = block[:, j] if s is None else s[:, start + j] * nearest(block[:, j], s[:, start + j], top)
            value = torch.where(kept[:, start + j], value, 0.0)
            errors[:, j] = (block[:, j] - value) / own[j, j]
            block[:, j:] -= errors[:, j, None] * own[j, j:]
            block[:, j] = value
        w[:, stop:] -= errors @ upper[start:stop, stop:]
    back = order.argsort()
    return w[:, back], kept[:, back]


def spared(block: Tensor, diagonal: Tensor, sparsity: float) -> Tensor:
    """Boolean: all but the entries with the least w² / U_jj², a fraction ``sparsity`` of the block."""
    worth = (block / diagonal).square().flatten()
    kept = torch.ones(len(worth), dtype=torch.bool, device=block.device)
    kept[worth.argsort(stable=True)[: round(sparsity * len(worth))]] = False
    return kept.view_as(block)


def refined(levels: Tensor, step: Tensor, hessian: Tensor, linear: Tensor) -> Tensor:
    """The one step of each row that is best for its levels: s = (l · t) / (l H lᵀ), t = linear (n, r)."""
    if step.shape[1] > 1:
        return step
    top = (levels * linear.mT).sum(1)
    bottom = (levels @ hessian * levels).sum(1)
    better = torch.where(bottom > 0, top / bottom, step[:, 0])
    return torch.where(better > 0, better, step[:, 0])[:, None]


def on_grid(
    weight: Tensor,
    hessian: Tensor,
    linear: Tensor,
    bits: int,
    *,
    group: int | None = None,
    sparsity: float = 0.0,
) -> tuple[Gridded, Tensor]:
    """W* (r, n) on a grid of so many bits (with zeros, masked), and the mask."""
    step = steps_for(weight, bits, hessian.diagonal(), group)
    wide = widened(step, weight.shape[1])
    value, kept = feedback(weight, hessian, step=wide, bits=bits, sparsity=sparsity)
    levels = nearest(value, wide, top_level(bits))
    levels, step = swept(levels, step, hessian, linear, bits, kept)
    return Gridded(levels, step), kept


def swept(
    levels: Tensor, step: Tensor, hessian: Tensor, linear: Tensor, bits: int, kept: Tensor, sweeps: int = 3
) -> tuple[Tensor, Tensor]:
    """Levels and steps improved in turn: each step by least squares, each column given all others."""
    for _ in range(sweeps):
        step = refined(levels, step, hessian, linear)
        levels = coordinate_sweep(levels, widened(step, levels.shape[1]), hessian, linear, bits, kept)
    return levels, refined(levels, step, hessian, linear)


def coordinate_sweep(
    levels: Tensor, step: Tensor, hessian: Tensor, linear: Tensor, bits: int, kept: Tensor
) -> Tensor:
    """Each column's best levels given all the others: w_j ← w_j + (t_j − (W H)_j) / H_jj, rounded; in blocks."""
    step = step.expand(levels.shape)
    levels, top = levels.clone(), top_level(bits)
    slope = linear.mT - (levels * step) @ hessian  # (r, n): −½ ∂/∂W
    for start in range(0, levels.shape[1], BLOCK):
        stop = min(start + BLOCK, levels.shape[1])
        own, moved = hessian[start:stop, start:stop], torch.zeros_like(levels[:, start:stop])
        local = slope[:, start:stop].clone()
        for j in range(stop - start):
            k = start + j
            value = step[:, k] * levels[:, k]
            level = nearest(value + local[:, j] / own[j, j], step[:, k], top)
            level = torch.where(kept[:, k], level, 0.0)
            moved[:, j] = step[:, k] * level - value
            levels[:, k] = level
            local -= moved[:, j, None] * own[j]
        slope -= moved @ hessian[start:stop]
    return levels
