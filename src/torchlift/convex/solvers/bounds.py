"""Boxes and simplices."""

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from torchlift.convex.activations.simplex import project_simplex

_CACHE = 2**17  # entries of a block of rows
_RowSolver = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclasses.dataclass(frozen=True)
class Bounds:
    """lo ≤ x ≤ hi per coordinate, and Σx = total if given."""

    lo: Tensor
    hi: Tensor
    total: float | None = None

    def to(self, dtype: torch.dtype) -> "Bounds":
        """The same bounds in another precision."""
        return Bounds(self.lo.to(dtype), self.hi.to(dtype), self.total)


def project(x: Tensor, bounds: Bounds) -> Tensor:
    """The nearest feasible point."""
    if bounds.total is not None:
        return bounds.total * project_simplex(x / bounds.total)
    return x.clamp(bounds.lo, bounds.hi)


def sides(x: Tensor, bounds: Bounds) -> Tensor:
    """−1 where x is at its lower bound, 1 at the upper, 0 where it is free."""
    return (x >= bounds.hi).to(torch.int8) - (x <= bounds.lo).to(torch.int8)


def violations(
    x: Tensor, slope: Tensor, side: Tensor, bounds: Bounds, width: Tensor, steep: Tensor
) -> Tensor:
    """Free coordinates out of bounds by ``width``; fixed ones whose slope points inside by ``steep``."""
    outside = (side == 0) & ((x < bounds.lo - width) | (x > bounds.hi + width))
    return outside | ((side < 0) & (slope < -steep)) | ((side > 0) & (slope > steep))


def exchange(x: Tensor, side: Tensor, change: Tensor, bounds: Bounds) -> Tensor:
    """The sides after every coordinate in ``change`` has left its bound or gone to the one it crossed."""
    bound = torch.where(x < bounds.lo, -1, 1).to(torch.int8)
    return torch.where(change, torch.where(side == 0, bound, 0).to(torch.int8), side)


def in_cache(rows: _RowSolver, g: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """``rows(g, start)`` some hundred rows at a time, so that all but H stays in the processor's cache."""
    size = max(1, _CACHE // g.shape[1] if g.device.type == "cpu" else len(g))
    pieces = [rows(gs, xs) for gs, xs in zip(g.split(size), start.split(size), strict=True)]
    return torch.cat([x for x, _ in pieces]), torch.cat([done for _, done in pieces])
