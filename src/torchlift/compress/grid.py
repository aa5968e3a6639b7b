"""Weights on a grid, column by column, each error made up for by the columns that follow.

    H = R Rᵀ, R upper,  U = R⁻¹;   q_j = s · clamp(round(w_j / s)),   w_k ← w_k − (w_j − q_j) U_jk / U_jj

for k > j. A block B needs U_BB = R_BB⁻¹ alone: what the columns P before it leave is (w_P − q_P) R_PB U_BB,
so that H is never inverted. Columns go in the order of their diagonal of H, the largest first. Steps s are
one for each row, or for each group of columns of a row. With a ``sparsity``, in every block of 128 columns
the entries with the least w_j² / U_jj² become zero in the same pass.
"""

import dataclasses

import torch
from torch import Tensor

BLOCK = 128
PIECE = 2**18
"""Entries of W that are worked on together: temporary copies of all of it would be many."""

FRACTIONS = 48
SWEEPS = 3
"""Sweeps over all columns after the pass."""


@dataclasses.dataclass(frozen=True, eq=False)
class Gridded:
    """Weights on a grid, W = step · levels, for each group of a layer."""

    levels: Tensor
    """(groups, r, n), whole numbers as floats"""
    step: Tensor
    """(groups, r, n / group)"""

    @property
    def weight(self) -> Tensor:
        """step · levels."""
        return self.levels * widened(self.step, self.levels.shape[-1])


def widened(step: Tensor, columns: int) -> Tensor:
    """A step for every column."""
    return step.repeat_interleave(columns // step.shape[-1], -1) if step.shape[-1] > 1 else step


def top_level(bits: int) -> int:
    """The largest level of signed whole numbers of so many bits, the same on both sides of zero."""
    return 2 ** (bits - 1) - 1


def steps_for(weight: Tensor, bits: int, importance: Tensor, group: int | None = None) -> Tensor:
    """The step s of each row (or group) with the least Σ h_j (w_j − q_j)², over clipped ranges, then by
    least squares.

    ``weight`` (groups, r, n), ``importance`` (groups, n): the diagonal of H.
    """
    some = max(1, PIECE // weight.shape[-1])
    return torch.cat([steps_of(rows, bits, importance, group) for rows in weight.split(some, 1)], 1)


def steps_of(weight: Tensor, bits: int, importance: Tensor, group: int | None) -> Tensor:
    """The steps of some rows."""
    width = group or weight.shape[-1]
    w = weight.unflatten(-1, (-1, width))
    tiny = torch.finfo(weight.dtype).tiny
    h = importance[:, None].unflatten(-1, (-1, width)).clamp(min=tiny)
    top = top_level(bits)
    largest = w.abs().amax(-1)
    hw = h * w
    best = torch.full_like(largest, -torch.inf)
    chosen = torch.zeros_like(largest)
    low = 0.1 if bits < 4 else 0.4
    for fraction in torch.linspace(low, 1.0, FRACTIONS, dtype=torch.float64).tolist():
        levels = nearest(w, largest[..., None] * (fraction / top), top)
        along, square = (hw * levels).sum(-1), (h * levels.square_()).sum(-1).clamp(min=tiny)
        gain = along.square() / square  # Σ h w² less the error of the step along / square
        better = gain > best
        best, chosen = torch.where(better, gain, best), torch.where(better, along / square, chosen)
    return chosen


def nearest(weight: Tensor, step: Tensor, top: float) -> Tensor:
    """clamp(round(w / s)); 0 where s is 0."""
    return (weight * inverse(step)).round_().clamp_(-top, top)


def inverse(step: Tensor) -> Tensor:
    """1 / s; 0 where s is 0."""
    return torch.where(step > 0, 1 / step, 0.0)


@dataclasses.dataclass(frozen=True, eq=False)
class Factored:
    """H (groups, n, n), the order of its columns, and R in that order."""

    hessian: Tensor
    order: Tensor
    upper: Tensor

    @classmethod
    def of(cls, hessian: Tensor) -> "Factored":
        """The largest diagonal first."""
        order = hessian.diagonal(dim1=1, dim2=2).argsort(descending=True, stable=True)
        upper = torch.empty_like(hessian)
        for own, whole, factor in zip(order.flip(1), hessian, upper, strict=True):
            factor.copy_(torch.linalg.cholesky(whole[own][:, own]).flip(-2, -1))
        return cls(hessian, order, upper)

    def solve(self, linear: Tensor) -> Tensor:
        """W = (H⁻¹ T)ᵀ (groups, r, n) of T (groups, n, r)."""
        sides = ordered(linear.mT, self.order)
        half = torch.linalg.solve_triangular(self.upper.mT, sides, upper=False, left=False)
        whole = torch.linalg.solve_triangular(self.upper, half, upper=True, left=False)
        return ordered(whole, self.order.argsort(-1))


def ordered(x: Tensor, order: Tensor) -> Tensor:
    """The last dimension of x (groups, r, n) in each group's order (groups, n)."""
    return x.gather(2, order[:, None].expand(-1, x.shape[1], -1))


def feedback(
    weight: Tensor,
    factored: Factored,
    *,
    step: Tensor | None = None,
    bits: int | None = None,
    sparsity: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """(Ŵ, kept): one pass over the columns of W (groups, r, n) with a grid, a mask, or both."""
    upper, columns = factored.upper, weight.shape[-1]
    w = ordered(weight.to(upper), factored.order)
    s = None if step is None else step.to(w).expand(*w.shape[:2], -1)
    s = s if s is None or s.shape[-1] == 1 else ordered(s, factored.order)
    top = top_level(bits) if bits else 0
    kept = torch.ones(weight.shape, dtype=torch.bool, device=w.device)
    value, lost = torch.empty_like(w), torch.empty_like(w)
    identity = torch.eye(min(BLOCK, columns), dtype=w.dtype, device=w.device)
    for start in range(0, columns, BLOCK):
        stop = min(start + BLOCK, columns)
        size = stop - start
        own = torch.linalg.solve_triangular(
            upper[:, start:stop, start:stop], identity[:size, :size].expand(len(w), -1, -1), upper=True
        )
        diagonal = own.diagonal(dim1=1, dim2=2)
        block = w[..., start:stop] + lost[..., :start] @ upper[:, :start, start:stop] @ own
        if sparsity > 0:
            kept[..., start:stop] = spared(block, diagonal, sparsity)
        mask, across = kept[..., start:stop].mT.to(w), (own / diagonal[..., None]).mT.contiguous()
        now = block.mT.contiguous()  # (groups, columns, r): a column's entries lie together
        steps = mask if s is None else s.mT.expand(-1, columns, -1)[:, start:stop].contiguous()
        scale = mask if s is None else mask * inverse(steps)
        new = torch.empty_like(now)
        for j in range(size):
            torch.mul(now[:, j], scale[:, j], out=new[:, j])
            if s is not None:
                new[:, j].round_().clamp_(-top, top).mul_(steps[:, j])
            moved = (now[:, j] - new[:, j])[:, None]
            now[:, j + 1 :].baddbmm_(across[:, j + 1 :, j, None], moved, alpha=-1)
        value[..., start:stop] = new.mT
        lost[..., start:stop] = w[..., start:stop] - value[..., start:stop]
    back = factored.order.argsort(-1)
    return ordered(value, back), ordered(kept, back)


def spared(block: Tensor, diagonal: Tensor, sparsity: float) -> Tensor:
    """Boolean: all but the entries with the least w² / U_jj², a fraction ``sparsity`` of each group's
    block."""
    worth = (block / diagonal[:, None]).square().flatten(1)
    kept = torch.ones_like(worth, dtype=torch.bool)
    least = worth.argsort(dim=-1, stable=True)[:, : round(sparsity * worth.shape[1])]
    return kept.scatter(1, least, False).view_as(block)


def refined(levels: Tensor, step: Tensor, hessian: Tensor, linear: Tensor) -> Tensor:
    """The one step of each row that is best for its levels: s = (l · t) / (l H lᵀ), t = linear (groups, n,
    r)."""
    if step.shape[-1] > 1:
        return step
    some = max(1, PIECE // levels.shape[-1])
    pieces = zip(levels.split(some, 1), linear.split(some, 2), strict=True)
    sums = [((own * t.mT).sum(-1), (own @ hessian * own).sum(-1)) for own, t in pieces]
    top, bottom = (torch.cat(own, 1)[..., None] for own in zip(*sums, strict=True))
    better = torch.where(bottom > 0, top / bottom, step)
    return torch.where(better > 0, better, step)


def on_grid(
    weight: Tensor,
    factored: Factored,
    linear: Tensor,
    bits: int,
    *,
    group: int | None = None,
    sparsity: float = 0.0,
) -> tuple[Gridded, Tensor]:
    """W* (groups, r, n) on a grid of so many bits (with zeros, masked), and the mask."""
    step = steps_for(weight, bits, factored.hessian.diagonal(dim1=1, dim2=2), group)
    wide = widened(step, weight.shape[-1])
    value, kept = feedback(weight, factored, step=wide, bits=bits, sparsity=sparsity)
    levels = nearest(value, wide, top_level(bits))
    levels, step = swept(levels, step, factored.hessian, linear, bits, kept)
    return Gridded(levels, step), kept


def masked(weight: Tensor, factored: Factored, linear: Tensor, sparsity: float) -> tuple[Tensor, Tensor]:
    """W* with so many zeros, and the mask."""
    value, kept = feedback(weight, factored, sparsity=sparsity)
    return refined_under_mask(value, factored.hessian, linear, kept), kept


def refined_under_mask(value: Tensor, hessian: Tensor, linear: Tensor, kept: Tensor) -> Tensor:
    """Each column given all others, a few times."""
    one = torch.ones_like(value[..., :1])
    for _ in range(SWEEPS):
        value = coordinate_sweep(value, one, hessian, linear, None, kept)
    return value


def swept(
    levels: Tensor, step: Tensor, hessian: Tensor, linear: Tensor, bits: int, kept: Tensor
) -> tuple[Tensor, Tensor]:
    """Levels and steps improved in turn: each step by least squares, each column given all others."""
    for _ in range(SWEEPS):
        step = refined(levels, step, hessian, linear)
        levels = coordinate_sweep(levels, widened(step, levels.shape[-1]), hessian, linear, bits, kept)
    return levels, short(refined(levels, step, hessian, linear))


def short(x: Tensor) -> Tensor:
    """The nearest numbers with the 11 significant bits of a half: a file takes half as much for them."""
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp((2048 * mantissa).round() / 2048, exponent)


def coordinate_sweep(
    levels: Tensor, step: Tensor, hessian: Tensor, linear: Tensor, bits: int | None, kept: Tensor
) -> Tensor:
    """Each column's best levels given all the others: w_j ← w_j + (t_j − (W H)_j) / H_jj, rounded; in blocks.

    Without ``bits`` nothing is rounded.
    """
    top = top_level(bits) if bits else 0
    columns = levels.shape[-1]
    levels = levels.mT.clone(memory_format=torch.contiguous_format)  # (groups, n, r): columns lie together
    scale = inverse(step.mT) if bool(kept.all()) else kept.mT * inverse(step.mT)
    step, scale = step.mT.expand(levels.shape), scale.expand(levels.shape)
    value = step * levels
    slope = torch.baddbmm(linear, hessian, value, alpha=-1)  # −½ ∂/∂W
    for start in range(0, columns, BLOCK):
        stop = min(start + BLOCK, columns)
        own = hessian[:, start:stop, start:stop]
        across = own / own.diagonal(dim1=1, dim2=2)[..., None]
        best = value[:, start:stop] + slope[:, start:stop] / own.diagonal(dim1=1, dim2=2)[..., None]
        moved = torch.empty_like(best)
        for j in range(stop - start):
            k = start + j
            torch.mul(best[:, j], scale[:, k], out=levels[:, k])
            if bits:
                levels[:, k].round_().clamp_(-top, top)
            torch.addcmul(-value[:, k], levels[:, k], step[:, k], out=moved[:, j])
            best[:, j + 1 :].baddbmm_(across[:, j + 1 :, j, None], moved[:, j, None], alpha=-1)
        slope[:, stop:] -= hessian[:, stop:, start:stop] @ moved
    return levels.mT.contiguous()
