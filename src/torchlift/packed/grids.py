"""Weights as whole numbers and what they are multiplied by:

    w = round(k · step),    w = round(k · step · column),    w = round(round(k · step) + offset)

One step for all of a weight, one per row, or one per block, as in :mod:`torchlift.core.stored`; a column
scale for each place along the second dimension; an offset beside every step. Products are taken in float64
and rounded once, which is the arithmetic of a storage record; with an offset every operation rounds to
float32 (float64 for float64). Zeros are positive; the level :func:`negative_zero` stands for −0.0.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import torch

from torchlift.packed.elements import BITS, bits_of
from torchlift.packed.rans import Array


def negative_zero(levels: Array) -> int:
    """The level that stands for −0.0: the least of its type."""
    return int(np.iinfo(levels.dtype).min)


@dataclasses.dataclass(frozen=True)
class Grid:
    """What the levels of a weight of this shape are multiplied by."""

    shape: tuple[int, ...]
    steps: Array
    """float32 or float64, with as many dimensions as the weight, each 1 or a divisor of the weight's."""
    offsets: Array | None = None
    columns: Array | None = None

    def values(self, levels: Array, start: int, kind: torch.dtype) -> Array:
        """The bits of the entries from place ``start`` on that have these levels."""
        least = negative_zero(levels)
        below = levels == least
        levels = np.where(below, 0, levels) if below.any() else levels
        with np.errstate(all="ignore"):
            bits = as_bits(self.products(levels, start, kind), kind)
        bits[below] = 1 << 8 * kind.itemsize - 1
        return bits

    def products(self, levels: Array, start: int, kind: torch.dtype) -> Array:
        """The numbers themselves, in the type they are computed in."""
        block = block_numbers(self.shape, self.steps.shape, start, levels.size)
        step = self.steps.reshape(-1)[block]
        if self.offsets is not None:
            wide = np.float64 if kind == torch.float64 else np.float32
            return np.multiply(levels, step, dtype=wide) + self.offsets.reshape(-1).astype(wide)[block]
        if self.columns is not None:
            column = self.columns[block_columns(self.shape, start, levels.size)]
            return np.multiply(levels, step, dtype=np.float64) * column + 0.0
        short = kind == torch.float32 and levels.itemsize < 4 and self.steps.dtype.itemsize == 4
        wide = np.float32 if short else np.float64  # a product of 16 and 24 bits rounds the same in both
        return np.multiply(levels, step, dtype=wide) + wide(0)


def as_bits(numbers: Array, kind: torch.dtype) -> Array:
    """Numbers rounded to a type, as bits."""
    if kind in (torch.float32, torch.float64):
        return numbers.astype(f"<f{kind.itemsize}", copy=False).view(BITS[kind.itemsize])
    return bits_of(torch.from_numpy(numbers).to(kind))


def block_numbers(shape: Sequence[int], blocks: Sequence[int], start: int, count: int) -> Array:
    """Which step each of ``count`` entries from ``start`` on has."""
    if math.prod(blocks) == 1:
        return np.zeros(count, np.intp)
    last = max(dim for dim, pieces in enumerate(blocks) if pieces > 1)
    run = math.prod(shape[last:]) // blocks[last]  # entries one after the other that have one step
    first, end = start // run, -(-(start + count) // run)
    flat = np.arange(first * run, end * run, run)
    block, inner = np.zeros(flat.size, np.intp), math.prod(shape)
    for size, pieces in zip(shape, blocks, strict=True):
        inner //= size
        if pieces > 1:
            block = block * pieces + flat // inner % size // (size // pieces)
    return block.repeat(run)[start - first * run :][:count]


def block_columns(shape: Sequence[int], start: int, count: int) -> Array:
    """The place along the second dimension of ``count`` entries from ``start`` on."""
    return np.arange(start, start + count) // math.prod(shape[2:]) % shape[1]
