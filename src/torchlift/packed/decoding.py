"""Entries from the forms of :mod:`torchlift.packed.forms`; lengths are checked before anything is made."""

import dataclasses
import math
import zlib
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from torchlift.packed.budget import Budget, PackedError
from torchlift.packed.byteflow import ByteSource, Cursor
from torchlift.packed.elements import BITS, DTYPES
from torchlift.packed.forms import (
    DEFLATED,
    GRID,
    MOST,
    PALETTE,
    PLANES,
    SPARSE,
    STORED,
    WHOLE,
)
from torchlift.packed.frequencies import FrequencyTable, read_frequencies
from torchlift.packed.grids import Grid
from torchlift.packed.rans import Array, Decoder
from torchlift.packed.symbols import NamedValues, pieces

FAR = 2**33
FLOATS = {
    torch.float64: ("float64",),
    torch.float32: ("float32", "float64"),
    torch.float16: ("float16", "float32"),
    torch.bfloat16: ("bfloat16", "float32"),
}
"""Types of weights that may lie on a grid, and of the steps they may have."""
OCTETS = np.arange(256, dtype=np.uint8)


@dataclasses.dataclass(frozen=True)
class TensorSource:
    """Where one tensor comes from: its description, its bytes, its code."""

    plan: ByteSource
    raw: Cursor
    decoder: Decoder
    budget: Budget

    def close(self) -> None:
        """Everything was used up."""
        self.plan.close()
        self.decoder.close()
        if self.raw.left:
            raise PackedError("there are bytes after the last entry of a tensor.")


class Entries(Protocol):
    """Entries that come stretch by stretch."""

    def read(self, count: int) -> Array:
        """The bits of the next ``count``."""
        ...


@dataclasses.dataclass
class StoredEntries:
    """Entries as they are."""

    reading: TensorSource
    unit: np.dtype

    def read(self, count: int) -> Array:
        """Bytes of the file."""
        return np.frombuffer(self.reading.raw.take(count * self.unit.itemsize), self.unit)


class DeflatedEntries:
    """Entries through zlib, never more than announced."""

    def __init__(self, reading: TensorSource, unit: np.dtype, count: int) -> None:
        length = reading.plan.number(reading.raw.left)
        reading.budget.take(length, "a deflated tensor")
        self.unit, self.left = unit, count
        self.rest, self.engine = reading.raw.take(length), zlib.decompressobj()

    def read(self, count: int) -> Array:
        """The next bytes of the stream; after the last ones it must end."""
        size, content = count * self.unit.itemsize, bytearray()
        try:
            while len(content) < size:
                more = self.engine.decompress(self.rest, size - len(content))
                self.rest = self.engine.unconsumed_tail
                if not more:
                    break
                content += more
            self.left -= count
            over = b"" if self.left else self.engine.decompress(self.rest, 1)
        except zlib.error as error:
            raise PackedError(f"a compressed stream is damaged ({error}).") from error
        if len(content) != size or over or (not self.left and not self.engine.eof) or self.engine.unused_data:
            raise PackedError("a compressed stream has another length than its tensor.")
        return np.frombuffer(bytes(content), self.unit)


class PlaneEntries:
    """Byte planes."""

    def __init__(self, reading: TensorSource, unit: np.dtype) -> None:
        self.reading, self.unit = reading, unit
        self.tables: list[FrequencyTable | None] = [
            read_frequencies(reading.plan, 256) if reading.plan.number(1) else None
            for _ in range(unit.itemsize)
        ]

    def read(self, count: int) -> Array:
        """The planes of a stretch, side by side."""
        octets = np.empty((count, self.unit.itemsize), np.uint8)
        for plane, table in enumerate(self.tables):
            if table is None:
                octets[:, plane] = np.frombuffer(self.reading.raw.take(count), np.uint8)
            else:
                octets[:, plane] = self.reading.decoder.symbols(
                    count, table.frequencies(), table.bits, OCTETS
                )
        return octets.reshape(-1).view(self.unit)


class PaletteEntries:
    """Values and their names."""

    def __init__(self, reading: TensorSource, unit: np.dtype, kind: torch.dtype, count: int) -> None:
        letters = reading.plan.number(min(count, MOST))
        reading.budget.take(64 * letters, "a palette")
        values = read_values(reading, letters, unit, kind)
        self.decoder, self.values = reading.decoder, NamedValues(values, count, reading.plan)

    def read(self, count: int) -> Array:
        """The values of the next names."""
        return self.values.read(count, self.decoder)


def read_values(reading: TensorSource, count: int, unit: np.dtype, kind: torch.dtype) -> Array:
    """A palette's values: entries of their own, or whole numbers by their distances."""
    if kind not in WHOLE:
        form = reading.plan.number(PLANES)
        return read_all(dense_entries(reading, form, unit, kind, count), count)
    numbers = np.cumsum(reading.plan.signs(count).clip(-FAR, FAR))
    values = numbers.astype(WHOLE[kind])
    if np.any(values != numbers):
        raise PackedError("a palette of whole numbers has others.")
    return values.view(unit)


class SparseEntries:
    """A mask, and the entries that are there."""

    def __init__(self, reading: TensorSource, unit: np.dtype, kind: torch.dtype, count: int) -> None:
        self.unit, self.decoder = unit, reading.decoder
        self.mask = NamedValues(np.array([False, True]), count, reading.plan)
        self.present = reading.plan.number(count)
        form = reading.plan.number(PALETTE)
        self.inner = dense_entries(reading, form, unit, kind, self.present)
        self.left = count
        self.kept: list[Array] | None = None
        """The mask, where somebody wants it."""

    def read(self, count: int) -> Array:
        """Zeros, and what the mask lets through."""
        mask = self.mask.read(count, self.decoder)
        there = int(np.count_nonzero(mask))
        self.present, self.left = self.present - there, self.left - count
        if self.present < 0 or (not self.left and self.present):
            raise PackedError("a mask keeps another number of entries than it says.")
        if self.kept is not None:
            self.kept.append(mask)
        bits = np.zeros(count, self.unit)
        bits[mask] = self.inner.read(there)
        return bits


class GridEntries:
    """Levels times steps."""

    def __init__(self, reading: TensorSource, kind: torch.dtype, shape: Sequence[int]) -> None:
        plan, count = reading.plan, math.prod(shape)
        if kind not in FLOATS or not count:
            raise PackedError("a tensor has steps that cannot have any.")
        wide, scaled, shifted, inexact = (plan.number(1) for _ in range(4))
        blocks = [plan.number(size) for size in shape]
        if any(not pieces or size % pieces for pieces, size in zip(blocks, shape, strict=True)):
            raise PackedError("the steps of a tensor do not fit its shape.")
        if scaled and len(shape) < 2:
            raise PackedError("a tensor has scales for columns that it does not have.")
        steps, self.step_kind = self.numbers(reading, kind, math.prod(blocks))
        offsets = self.numbers(reading, kind, math.prod(blocks))[0] if shifted else None
        columns = self.numbers(reading, kind, shape[1])[0] if scaled else None
        self.grid = Grid(tuple(shape), steps.reshape(blocks), offsets, columns)
        self.kind, self.at, self.whole = kind, 0, "<i4" if wide else "<i2"
        self.levels = entries(reading, torch.int32 if wide else torch.int16, [count])
        self.rest = entries(reading, torch.int16, [count]) if inexact else None
        self.inexact = bool(scaled or shifted or inexact)

    @staticmethod
    def numbers(reading: TensorSource, kind: torch.dtype, count: int) -> tuple[Array, torch.dtype]:
        """Steps, scales or offsets, whole, and their own type."""
        name = list(DTYPES)[reading.plan.number(len(DTYPES) - 1)]
        if name not in FLOATS[kind]:
            raise PackedError("the steps of a tensor are of another type than theirs.")
        reading.budget.take(16 * count, "the steps of a tensor")
        form = reading.plan.number(SPARSE)
        bits = read_all(dense_entries(reading, form, None, DTYPES[name], count), count)
        numbers = torch.from_numpy(bits.view(np.uint8)).view(DTYPES[name])
        return (numbers if name == "float64" else numbers.float()).numpy(), numbers.dtype

    def read(self, count: int) -> Array:
        """The products of a stretch."""
        levels = self.levels.read(count).view(self.whole)
        bits = self.grid.values(levels, self.at, self.kind)
        self.at += count
        if self.rest is not None:
            bits += self.rest.read(count).view("<i2").astype(bits.dtype)
        return bits


def entries(reading: TensorSource, kind: torch.dtype, shape: Sequence[int]) -> Entries:
    """What the description of a tensor says its entries come from."""
    form, count = reading.plan.number(GRID), math.prod(shape) * max(1, kind.itemsize // 8)
    if form == GRID:
        return GridEntries(reading, kind, shape)
    return dense_entries(reading, form, BITS[kind.itemsize], kind, count)


def dense_entries(
    reading: TensorSource, form: int, unit: np.dtype | None, kind: torch.dtype, count: int
) -> Entries:
    """Entries in any form but those of grids."""
    unit = BITS[kind.itemsize] if unit is None else unit
    if form == STORED:
        return StoredEntries(reading, unit)
    if form == DEFLATED:
        return DeflatedEntries(reading, unit, count)
    if form == PLANES:
        return PlaneEntries(reading, unit)
    if form == PALETTE:
        return PaletteEntries(reading, unit, kind, count)
    return SparseEntries(reading, unit, kind, count)


def read_all(entries: Entries, count: int) -> Array:
    """All entries, stretch by stretch into their place."""
    out: Array | None = None
    for start, end in pieces(count):
        bits = entries.read(end - start)
        out = np.empty(count, bits.dtype) if out is None else out
        out[start:end] = bits
    return np.empty(0, np.uint8) if out is None else out
