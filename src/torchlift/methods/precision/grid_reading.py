"""Reading a weight's grid from its values: on SMOL's grids a value says its precision."""

import torch
from torch import Tensor, nn

from torchlift.core import Problem, Reparametrized
from torchlift.core.stored import owner_of
from torchlift.methods.precision.grids import MOST, half_step

MARK = "_on_grid"
FEW, ENOUGH = 8, 4
"""Rows on grids of their own have at most so many bits, and one of them so many entries: any two numbers lie
on some grid."""


def mark_grids(plain: Problem, lifted: Reparametrized) -> Problem:
    """The projected problem itself; noted on their owners, which weights were put on a grid on purpose."""
    for name in [name for slots in lifted.slots.values() for name in slots]:
        owner, leaf = owner_of(plain, name)
        setattr(owner, MARK, tuple(sorted({*getattr(owner, MARK, ()), leaf})))
    return plain


def on_purpose(owner: nn.Module, leaf: str = "weight") -> bool:
    """Whether a weight was put on a grid of up to 8 bits, and still lies there."""
    if leaf not in getattr(owner, MARK, ()):
        return False
    weight = owner.get_parameter(leaf)
    return one_grid(weight, FEW) is not None or rows_of(weight) is not None


def grid_of(w: Tensor) -> tuple[Tensor, Tensor] | None:
    """The (p, c) of a weight that lies on a grid, read from its values; None where it lies on none.

    One c for all of it, or one for each row: a norm that is folded into a layer scales its rows. Scales of
    rows may have a common unit by chance; where both can be read, rows count if they take half the bits.
    """
    one = one_grid(w)
    half = None if one is None else int(one[0].sum()) / 2
    rows = None if half is not None and half < int(w.count_nonzero()) else rows_of(w)  # a bit each at least
    if rows is not None and (half is None or int(rows[0].sum()) <= half):
        return rows
    return None if one is None else (one[0], torch.as_tensor(one[1], dtype=w.dtype, device=w.device))


def rows_of(w: Tensor) -> tuple[Tensor, Tensor] | None:
    """The (p, c) of a weight whose rows lie on grids of their own; c is shaped to meet the weight."""
    if w.ndim < 2 or not w.numel():
        return None
    bits, scales, most = list[Tensor](), list[float](), 0
    for row in w.detach().flatten(1):
        alive = int(row.count_nonzero())
        found = one_grid(row, FEW) if alive else (torch.zeros_like(row, dtype=torch.int16), 1.0)
        if found is None:
            return None
        most = max(most, alive)
        bits.append(found[0])
        scales.append(found[1])
    if most < ENOUGH:
        return None
    shape = (-1, *[1] * (w.ndim - 1))
    return torch.stack(bits).view_as(w), torch.tensor(scales, dtype=w.dtype, device=w.device).view(shape)


def one_grid(w: Tensor, most: int = MOST) -> tuple[Tensor, float] | None:
    """The (p, c) of values on one grid of at most so many bits; None where they are on none.

    Every value is odd · 2^k · g for one g: its own half step is 2^k g, which is 2^(1−p) c. Of the scales that
    fit, the least. Values are compared to the last bit, so that what is read projects to what was given.
    """
    values, where = w.detach().abs().unique(return_inverse=True)
    alive = values[values > 0]
    if not alive.numel() or alive.numel() > 2**most or not bool(torch.isfinite(alive).all()):
        return None
    whole = multiples(alive.double(), torch.finfo(w.dtype).eps, most)
    if whole is None:
        return None
    low = whole & -whole
    top = int(whole.max()).bit_length() - 1
    scale = exact_scale(alive, whole, top)
    if scale is None:
        return None
    p = 1 + top - torch.log2(low.double()).round().to(torch.int16)
    bits = torch.cat([p.new_zeros(len(values) - len(alive)), p])
    return bits[where].view_as(w), scale


def multiples(values: Tensor, eps: float, bits: int) -> Tensor | None:
    """Positive values, in order, as whole multiples of their largest common unit; None without one."""
    most = int(2**bits * float(values[0] / values[-1]))
    parts = torch.arange(1, most + 1, dtype=values.dtype, device=values.device)  # of the least value
    few = values[:: max(1, len(values) // 8)]
    for part in parts[fits(parts[:, None] * (few / values[0]), eps).all(1)].tolist():
        ratio = values * (part / values[0])
        if bool(fits(ratio, eps).all()):
            return ratio.round().long()
    return None


def fits(ratio: Tensor, eps: float) -> Tensor:
    """Where a ratio of rounded numbers is a whole one."""
    return (ratio - ratio.round()).abs() <= 2 * eps * ratio


def exact_scale(values: Tensor, whole: Tensor, top: int) -> float | None:
    """The c with c · (whole / 2^top) = values in their own number type, to the last bit."""
    grid = (whole.double() * half_step(torch.tensor(1 + top, device=whole.device))).to(values.dtype)
    place = int((whole // (whole & -whole)).argmin())  # the least odd part loses the fewest digits
    guess, eps = values[place].double() / grid[place].double(), torch.finfo(values.dtype).eps
    for ulps in (0, -0.5, 0.5, -1, 1):
        near = (guess * (1 + ulps * eps)).to(values.dtype)
        if torch.equal(near * grid, values):
            return float(near)
    return None


def precisions(w: Tensor) -> dict[int, int] | None:
    """How many entries of a weight on a grid have how many bits; None where it lies on none."""
    found = grid_of(w) if w.is_floating_point() else None
    if found is None:
        return None
    bits, counts = found[0].unique(return_counts=True)
    return dict(zip(bits.tolist(), counts.tolist(), strict=True))
