"""Gates b(β, s) that tend to the step 1{s > 0} as β grows, and how they spread over weights."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from torchlift.errors import TorchliftError

GateShape = Literal["sigmoid", "erf", "algebraic", "arctan"]

SHAPES = ("sigmoid", "erf", "algebraic", "arctan")


def soft(gate: GateShape, beta: Tensor, s: Tensor) -> Tensor:
    """b(β, s) in (0, 1), with b(β, 0) = ½.

    sigmoid:    1 / (1 + e^(−βs))                          Savarese, thesis, eq. 4.15
    erf:        ½ (1 + erf(βs))                            ibid. §4.2.4
    algebraic:  ½ (1 + s / √(1/β + s²))                    ibid. with k = 2
    arctan:     ½ (1 + (2/π) arctan(βs))                   ibid.; the text prints π/2, which leaves (0, 1)
    """
    if gate == "sigmoid":
        return torch.sigmoid(beta * s)
    if gate == "erf":
        return 0.5 * (1 + torch.erf(beta * s))
    if gate == "algebraic":
        return 0.5 * (1 + s * torch.rsqrt(1 / beta + s * s))
    return 0.5 + torch.arctan(beta * s) / math.pi


def check_gate(gate: str) -> None:
    """Raise for a gate nobody knows."""
    if gate not in SHAPES:
        raise TorchliftError(f"gate {gate!r} is not known: one of {', '.join(SHAPES)}.")


@dataclasses.dataclass(frozen=True)
class Slices:
    """Slices of one dimension that share gates: slice k has the gate ``index[k]``."""

    dim: int
    index: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many gates there are."""
        return max(self.index) + 1


Grain = Sequence[int] | Slices
"""How many entries of each dimension share a gate, or which slices do."""


def tiles(shape: Sequence[int], grain: Grain) -> tuple[int, ...]:
    """How many tiles of the grain cover each dimension."""
    if isinstance(grain, Slices):
        return (grain.count,)
    return tuple(-(-n // size) for n, size in zip(shape, grain, strict=True))


def spread_tiles(values: Tensor, shape: Sequence[int], grain: Grain) -> Tensor:
    """One value per tile, repeated over its tile; dimensions with a single tile are left to broadcasting."""
    if isinstance(grain, Slices):
        index = torch.tensor(grain.index, device=values.device)
        return values.flatten()[index].reshape([n if d == grain.dim else 1 for d, n in enumerate(shape)])
    for dim, (n, size) in enumerate(zip(shape, grain, strict=True)):
        if 1 < size < n:
            values = values.repeat_interleave(size, dim).narrow(dim, 0, n)
    return values


def tile_sums(entries: Tensor, grain: Grain) -> Tensor:
    """Sums of the entries over each tile: the transpose of :func:`spread_tiles`."""
    if isinstance(grain, Slices):
        rows = entries.transpose(0, grain.dim).reshape(entries.shape[grain.dim], -1).sum(1)
        index = torch.tensor(grain.index, device=entries.device)
        return rows.new_zeros(grain.count).index_add_(0, index, rows)
    for dim, size in enumerate(grain):
        n = entries.shape[dim]
        if size >= n:
            entries = entries.sum(dim, keepdim=True)
        elif size > 1:
            index = torch.arange(n, device=entries.device) // size
            shape = (*entries.shape[:dim], -(-n // size), *entries.shape[dim + 1 :])
            entries = entries.new_zeros(shape).index_add_(dim, index, entries)
    return entries


def quantile(scores: Tensor, costs: Tensor, amount: float) -> Tensor:
    """The score below which entries worth ``amount`` lie, half-way to the next."""
    order = torch.argsort(scores)
    spent = costs[order].double().cumsum(0)
    count = int((spent - 0.5 * costs[order] <= amount).sum())
    ranked = scores[order]
    below, above = ranked[max(count - 1, 0)], ranked[min(count, len(ranked) - 1)]
    return below - 1e-6 * below.abs() - 1e-12 if count == 0 else 0.5 * (below + above)


def spare_best(dropped: Tensor, scores: Tensor) -> Tensor:
    """The entries to drop, but never all: the best one stays, for a weight that is all zero is none."""
    if bool(dropped.all()):
        dropped = dropped.clone()
        dropped.view(-1)[scores.argmax()] = False
    return dropped


def rounded_drops(dropped: Tensor, scores: Tensor, multiple: int) -> Tensor:
    """The entries to drop, more or fewer of them, so that the number left is the nearest multiple.

    Best scores stay, what was to stay first. As it is where there are not so many entries that are one.
    """
    if multiple < 2 or dropped.numel() % multiple:
        return dropped
    left = max(multiple, round((dropped.numel() - int(dropped.sum())) / multiple) * multiple)
    flat = dropped.flatten()
    order = torch.argsort(scores.detach().flatten(), descending=True, stable=True)
    order = order[torch.argsort(flat[order].to(torch.int8), stable=True)]
    result = torch.ones_like(flat)
    result[order[:left]] = False
    return result.view_as(dropped)


def lowest_scores(scores: Tensor, ties: Tensor, costs: Tensor, amount: float) -> Tensor:
    """The entries to drop, lowest score first (equal scores: lowest ``ties`` first), worth ``amount`` in all.

    Boolean; the cost dropped is as near to ``amount`` as whole entries in this order allow.
    """
    order = torch.argsort(ties, stable=True)
    order = order[torch.argsort(scores[order], stable=True)]
    spent = costs[order].double().cumsum(0)
    dropped = torch.zeros_like(scores, dtype=torch.bool)
    dropped[order[spent - 0.5 * costs[order] <= amount]] = True
    return dropped
