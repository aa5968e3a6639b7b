"""Entries from the forms of :mod:`torchlift.packed.codecs`; lengths are checked before anything is made."""

import dataclasses
import zlib

import numpy as np
import torch

from torchlift.packed import palettes, rowgrids, symbols
from torchlift.packed.budget import Budget, PackedError
from torchlift.packed.byteflow import Source
from torchlift.packed.elements import BITS
from torchlift.packed.frequencies import read_table
from torchlift.packed.rans import Array, Decoder

STORED, DEFLATED, PLANES, PALETTE, SPARSE, ROWS = range(6)
OCTETS = np.arange(256, dtype=np.uint8)


@dataclasses.dataclass(frozen=True)
class Reading:
    """The parts of a file that tensors come from."""

    plan: Source
    raw: Source
    decoder: Decoder
    budget: Budget


def decode(reading: Reading, count: int, kind: torch.dtype, rows: int = 0) -> Array:
    """The bits of ``count`` entries in so many rows (0: none); whoever calls holds their memory in the
    budget."""
    form = reading.plan.number(ROWS)
    if form == ROWS:
        return decode_rows(reading, count, kind, rows)
    if form == SPARSE:
        return decode_sparse(reading, count, kind)
    return decode_dense(reading, form, count, kind)


def decode_rows(reading: Reading, count: int, kind: torch.dtype, rows: int) -> Array:
    """Steps, one a row, times whole numbers; neither has rows of its own."""
    if kind not in palettes.FLOATS or rows < 1 or count < rows:
        raise PackedError("a tensor has steps for rows that it does not have.")
    wide = 8 * count if kind.itemsize == 2 else 0  # the products before they are rounded
    with reading.budget.lend(2 * count + 32 * rows + wide, "the multiples of steps"):
        steps = decode_dense(reading, reading.plan.number(PALETTE), rows, kind)
        whole = decode(reading, count, torch.int16).view("<i2").reshape(rows, -1)
        return rowgrids.merged(steps, whole, kind).reshape(count)


def decode_sparse(reading: Reading, count: int, kind: torch.dtype) -> Array:
    """A mask, and the entries that are there."""
    unit = BITS[kind.itemsize]
    with reading.budget.lend(2 * count, "a mask"):
        mask = symbols.read(count, np.array([False, True]), reading.plan, reading.decoder)
        present = reading.plan.number(count)
        if int(np.count_nonzero(mask)) != present:
            raise PackedError("a mask keeps another number of entries than it says.")
        with reading.budget.lend(present * unit.itemsize, "the entries of a mask"):
            rest = decode_dense(reading, reading.plan.number(PALETTE), present, kind)
            bits = np.zeros(count, unit)
            np.place(bits, mask, rest)
    return bits


def decode_dense(reading: Reading, form: int, count: int, kind: torch.dtype) -> Array:
    """Entries in any form but those of masks and of rows."""
    unit = BITS[kind.itemsize]
    size = count * unit.itemsize
    if form == STORED:
        return np.frombuffer(reading.raw.bytes(size), unit).copy()
    if form == DEFLATED:
        with reading.budget.lend(size, "a deflated tensor"):
            return np.frombuffer(inflate(reading.raw.bytes(reading.plan.number()), size), unit).copy()
    if form == PLANES:
        return decode_planes(reading, count, unit.itemsize).view(unit).reshape(count)
    letters = reading.plan.number(min(count, palettes.MOST))
    work = 10 + unit.itemsize if letters > symbols.BLOCK else 1
    with reading.budget.lend(work * count + 64 * letters, "a palette"):
        values = palettes.read(reading.plan, letters, kind)
        return symbols.read(count, values, reading.plan, reading.decoder)


def decode_planes(reading: Reading, count: int, width: int) -> Array:
    """The inverse of :func:`planes`."""
    octets = np.empty((count, width), np.uint8)
    for plane in range(width):
        if reading.plan.number(1):
            table = read_table(reading.plan, 256)
            with reading.budget.lend(count, "a plane"):
                octets[:, plane] = reading.decoder.symbols(count, table.frequencies(), table.bits, OCTETS)
        else:
            octets[:, plane] = np.frombuffer(reading.raw.bytes(count), np.uint8)
    return octets


def inflate(content: bytes | memoryview, size: int) -> bytes:
    """Exactly ``size`` bytes from a deflated stream; never more are made."""
    engine = zlib.decompressobj()
    try:
        found = engine.decompress(content, size + 1)
    except zlib.error as error:
        raise PackedError(f"a compressed stream is damaged ({error}).") from error
    if len(found) != size or not engine.eof or engine.unused_data:
        raise PackedError(f"a stream has {len(found)} bytes where {size} were promised.")
    return found
