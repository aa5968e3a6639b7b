"""Tensors as bytes and back, exactly; the smallest of several forms is kept.

stored:    the entries, least byte first.
deflated:  the same through zlib, for what repeats itself.
planes:    all first bytes of the entries, then all second bytes, …: each plane coded where that makes it
           smaller (signs and exponents of trained weights take three bits of eight).
palette:   the distinct values, at most 65,536 of them, and the coded name of each entry's.
sparse:    a coded mask (1 where an entry's bits are not all zero), then the entries that are there, in
           another form.
same:      as an earlier tensor.
"""

import dataclasses
import zlib

import numpy as np
import torch

from torchlift.deploy import palettes, symbols
from torchlift.deploy.budget import Budget, PackedError
from torchlift.deploy.byteflow import Sink, Source
from torchlift.deploy.elements import BITS, distinct
from torchlift.deploy.frequencies import fit, read_table
from torchlift.deploy.rans import Array, Decoder, Segment

STORED, DEFLATED, PLANES, PALETTE, SPARSE = range(5)
SAMPLE = 1 << 16
OCTETS = np.arange(256, dtype=np.uint8)


@dataclasses.dataclass
class Form:
    """One way to write entries: a description, bytes as they are, segments of the coder; their size
    together."""

    plan: Sink = dataclasses.field(default_factory=Sink)
    raw: list[bytes] = dataclasses.field(default_factory=list)
    segments: list[Segment] = dataclasses.field(default_factory=list)
    size: float = 0.0

    def store(self, content: bytes) -> None:
        """Add bytes as they are."""
        self.raw.append(content)
        self.size += len(content)


def encode(bits: Array, kind: torch.dtype) -> Form:
    """The smallest form of a tensor's bits; of nearly equal ones that with the fewest symbols, which reads
    faster."""
    forms = dense_forms(bits, kind)
    present = bits != 0
    if bits.size and not present.all() and present.any():
        form = Form()
        form.plan.number(SPARSE)
        form.size = 1 + symbols.write(present.view(np.uint8), 2, form.plan, form.segments)
        rest = best(dense_forms(bits[present], kind))
        form.plan.number(int(present.sum()))
        form.plan.bytes(bytes(rest.plan.data))
        forms.append(Form(form.plan, rest.raw, [*form.segments, *rest.segments], form.size + rest.size))
    found = best(forms)
    return deflated(bits, found.size) or found


def best(forms: list[Form]) -> Form:
    """The form with the fewest symbols among those within a five-hundredth of the smallest."""
    least = min(form.size for form in forms)
    return min(
        (form for form in forms if form.size <= symbols.WORTH * least),
        key=lambda form: (sum(segment.symbols.size for segment in form.segments), form.size),
    )


def dense_forms(bits: Array, kind: torch.dtype) -> list[Form]:
    """All forms of entries that are not about zeros."""
    stored = Form()
    stored.plan.number(STORED)
    stored.store(bits.tobytes())
    if bits.size < 2:
        return [stored]
    values = distinct(bits, palettes.MOST)
    if values is None or values.size == bits.size:
        return [stored, planes(bits)]
    return [stored, planes(bits), palette(bits, values, kind)]


def planes(bits: Array) -> Form:
    """Byte planes, coded where that helps by a percent."""
    form = Form()
    form.plan.number(PLANES)
    for plane in bits.view(np.uint8).reshape(bits.size, -1).T:
        table, size = fit(np.bincount(plane, minlength=256))
        coded = size + 2 < 0.99 * plane.size
        form.plan.number(int(coded))
        if coded:
            form.size += symbols.add(plane, table, size, form.plan, form.segments)
        else:
            form.store(plane.tobytes())
    return form


def palette(bits: Array, values: Array, kind: torch.dtype) -> Form:
    """Distinct values and names."""
    form = Form()
    form.plan.number(PALETTE)
    form.plan.number(values.size)
    before = len(form.plan.data)
    stored = palettes.write(values, kind, form.plan)
    form.size = len(form.plan.data) - before
    order = np.argsort(stored)
    names = order[np.searchsorted(stored[order], bits)]
    form.size += symbols.write(names, values.size, form.plan, form.segments)
    return form


def deflated(bits: Array, size: float) -> Form | None:
    """Through zlib, if that is smaller than ``size``; a sample tells whether to try."""
    content = bits.tobytes()
    if len(zlib.compress(content[:SAMPLE], 6)) * len(content) > size * min(SAMPLE, len(content)):
        return None
    small = zlib.compress(content, 9)
    if len(small) >= size:
        return None
    form = Form()
    form.plan.number(DEFLATED)
    form.plan.number(len(small))
    form.store(small)
    return form


@dataclasses.dataclass(frozen=True)
class Reading:
    """The parts of a file that tensors come from."""

    plan: Source
    raw: Source
    decoder: Decoder
    budget: Budget


def decode(reading: Reading, count: int, kind: torch.dtype) -> Array:
    """The bits of ``count`` entries; whoever calls holds their memory in the budget."""
    unit, form = BITS[kind.itemsize], reading.plan.number(SPARSE)
    if form != SPARSE:
        return decode_dense(reading, form, count, kind)
    with reading.budget.lend(2 * count, "a mask"):
        mask = symbols.read(count, np.array([False, True]), reading.plan, reading.decoder)
        present = reading.plan.number(count)
        if int(np.count_nonzero(mask)) != present:
            raise PackedError("a mask keeps another number of entries than it says.")
        with reading.budget.lend(present * unit.itemsize, "the entries of a mask"):
            rest = decode_dense(reading, reading.plan.number(PALETTE), present, kind)
            bits = np.zeros(count, unit)
            bits[mask] = rest
    return bits


def decode_dense(reading: Reading, form: int, count: int, kind: torch.dtype) -> Array:
    """Entries in any form but the sparse one."""
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
    with reading.budget.lend((14 if letters > symbols.BLOCK else 1) * count + 64 * letters, "a palette"):
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
