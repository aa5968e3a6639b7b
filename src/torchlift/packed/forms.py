"""Ways to write a tensor's entries exactly; the smallest is kept.

stored:    the entries, least byte first.
deflated:  the same through zlib, for what repeats itself.
planes:    all first bytes of a stretch, then all second bytes, …: each plane coded where that makes it
           smaller (signs and exponents of trained weights take three bits of eight).
palette:   the distinct values, at most 65,536 of them, and the coded name of each entry's.
sparse:    a coded mask (1 where an entry's bits are not all zero), then the entries that are there, in
           another form.
grid:      steps (with column scales and offsets where there are any) and whole numbers: the entries are their
           products (:mod:`torchlift.packed.grids`), or a few units in the last place beside them.

``size`` is what a form takes, tables included; ``ideal`` the least that it must take, the entropy of what is
coded. Every form writes stretches of entries, one after the other.
"""

import dataclasses
import zlib
from typing import Protocol

import numpy as np
import torch

from torchlift.packed.byteflow import ByteSink
from torchlift.packed.elements import DTYPES, bits_of, distinct
from torchlift.packed.frequencies import entropy_bits, least_size
from torchlift.packed.grids import Grid
from torchlift.packed.rans import Array, Segment
from torchlift.packed.symbols import WORTH, Boundaries, Coded, Names, pieces

STORED, DEFLATED, PLANES, PALETTE, SPARSE, GRID = range(6)
MOST, FEW = 65_536, 32
"""Values of a palette; so few are not worth tables."""
SAMPLES = ((1 << 13, 1, 1.2), (1 << 16, 6, 1.0))
"""Bytes that tell whether zlib pays: how many, at which level, how much larger than hoped for they may be."""
WHOLE = {torch.int16: "<i2", torch.int32: "<i4"}


@dataclasses.dataclass
class Out:
    """What forms write into: bytes as they are, and segments of the coder."""

    raw: list[bytes] = dataclasses.field(default_factory=list)
    segments: list[Segment] = dataclasses.field(default_factory=list)


class Form(Protocol):
    """One way to write entries."""

    size: float
    ideal: float
    symbols: int

    def describe(self, sink: ByteSink) -> None:
        """What reading needs before the first entry."""
        ...

    def start(self, out: Out) -> None:
        """What stands before the first stretch."""
        ...

    def emit(self, start: int, end: int, out: Out) -> None:
        """A stretch of the entries."""
        ...


class RawForm:
    """The entries as they are."""

    def __init__(self, bits: Array) -> None:
        self.bits, self.symbols = bits, 0
        self.size = self.ideal = float(bits.nbytes)

    def describe(self, sink: ByteSink) -> None:
        """Its number."""
        sink.number(STORED)

    def start(self, out: Out) -> None:
        """Nothing."""

    def emit(self, start: int, end: int, out: Out) -> None:
        """Bytes."""
        out.raw.append(self.bits[start:end].tobytes())


class Deflated:
    """All entries through zlib, written before the first stretch."""

    def __init__(self, content: bytes) -> None:
        self.content, self.symbols = content, 0
        self.size = self.ideal = float(len(content))

    def describe(self, sink: ByteSink) -> None:
        """Its number and length."""
        sink.number(DEFLATED)
        sink.number(len(self.content))

    def start(self, out: Out) -> None:
        """Everything at once."""
        out.raw.append(self.content)

    def emit(self, start: int, end: int, out: Out) -> None:
        """Nothing more."""


class PlanesForm:
    """Byte planes, coded where that helps by a percent."""

    def __init__(self, bits: Array) -> None:
        self.planes = bits.view(np.uint8).reshape(bits.size, -1).T
        self.coded: list[Coded | None] = []
        self.size = self.ideal = 0.0
        self.symbols = 0
        for plane in self.planes:
            counts = np.bincount(plane, minlength=256)
            coded = Coded(counts) if least_size(counts) + 2 < 0.99 * plane.size else None
            coded = coded if coded is not None and coded.size + 2 < 0.99 * plane.size else None
            self.coded.append(coded)
            self.size += plane.size if coded is None else coded.size
            self.ideal += min(entropy_bits(counts) / 8, plane.size)
            self.symbols += 0 if coded is None else plane.size

    def describe(self, sink: ByteSink) -> None:
        """Its number, and the tables of the planes that have one."""
        sink.number(PLANES)
        for coded in self.coded:
            sink.number(int(coded is not None))
            if coded is not None:
                coded.table.write(sink)

    def start(self, out: Out) -> None:
        """Nothing."""

    def emit(self, start: int, end: int, out: Out) -> None:
        """The planes of a stretch."""
        for plane, coded in zip(self.planes, self.coded, strict=True):
            if coded is None:
                out.raw.append(plane[start:end].tobytes())
            else:
                out.segments.append(coded.segment(plane[start:end]))


class Palette:
    """Distinct values in rising order, and names."""

    def __init__(
        self, values: Array, names: Array, kind: torch.dtype, cuts: Boundaries | None = None
    ) -> None:
        self.values, self.kind = values, kind
        if kind in WHOLE:  # rising as numbers, not as bits
            order = np.argsort(values.view(WHOLE[kind]))
            self.values, names = values[order], np.argsort(order).astype(names.dtype)[names]
        self.names = Names(names, values.size, cuts)
        forms: list[Form] = [RawForm(self.values), *([PlanesForm(self.values)] if values.size > FEW else [])]
        self.bytes = None if kind in WHOLE else best(forms)
        self.size, self.ideal = self.names.size + 2, self.names.ideal
        self.size += values.size if self.bytes is None else self.bytes.size
        self.ideal += 0.0 if self.bytes is None else self.bytes.ideal
        self.symbols = self.names.count

    def describe(self, sink: ByteSink) -> None:
        """Its number, the values (whole numbers by their distances, others in a form), the names' tables."""
        sink.number(PALETTE)
        sink.number(self.values.size)
        if self.bytes is None:
            numbers = self.values.view(WHOLE[self.kind]).astype(np.int64)
            for distance in np.diff(numbers, prepend=0).tolist():
                sink.signed(distance)
        else:
            self.bytes.describe(sink)
        self.names.describe(sink)

    def start(self, out: Out) -> None:
        """The values, where they are not whole numbers."""
        if self.bytes is not None:
            emit_all(self.bytes, self.values.size, out)

    def emit(self, start: int, end: int, out: Out) -> None:
        """Names."""
        out.segments.extend(self.names.segments(start, end))


class SparseForm:
    """A mask, and a form of the entries that are there."""

    def __init__(self, mask: Names, before: Array, inner: Form) -> None:
        self.mask, self.before, self.inner = mask, before, inner
        self.size, self.ideal = 1 + mask.size + inner.size, mask.ideal + inner.ideal
        self.symbols = mask.count + inner.symbols

    def describe(self, sink: ByteSink) -> None:
        """Its number, the mask's table, how many there are, and their form."""
        sink.number(SPARSE)
        self.mask.describe(sink)
        sink.number(int(self.before[-1]))
        self.inner.describe(sink)

    def start(self, out: Out) -> None:
        """What the entries start with."""
        self.inner.start(out)

    def emit(self, start: int, end: int, out: Out) -> None:
        """The mask of a stretch, then its entries."""
        out.segments.extend(self.mask.segments(start, end))
        self.inner.emit(int(self.before[start]), int(self.before[end]), out)


class GridForm:
    """Steps and levels, and what is missing to the entries' bits where the grid does not give them exactly;
    all steps stand before the first stretch."""

    def __init__(
        self,
        grid: Grid,
        levels: Form,
        wide: bool,
        steps: list[tuple[str, Form, int]],
        rest: Form | None = None,
    ) -> None:
        self.grid, self.levels, self.wide, self.steps, self.rest = grid, levels, wide, steps, rest
        every = [levels, *(form for _, form, _ in steps), *([] if rest is None else [rest])]
        self.size = 4 + sum(form.size for form in every)
        self.ideal = sum(form.ideal for form in every)
        self.symbols = sum(form.symbols for form in every)

    def describe(self, sink: ByteSink) -> None:
        """Its number, the steps' shape and forms, and the forms of the levels and of the rest."""
        sink.number(GRID)
        grid = self.grid
        for fact in (self.wide, grid.columns is not None, grid.offsets is not None, self.rest is not None):
            sink.number(int(fact))
        for size in grid.steps.shape:
            sink.number(size)
        for kind, form, _ in self.steps:
            sink.number(list(DTYPES).index(kind))
            form.describe(sink)
        self.levels.describe(sink)
        if self.rest is not None:
            self.rest.describe(sink)

    def start(self, out: Out) -> None:
        """The steps."""
        for _, form, count in self.steps:
            emit_all(form, count, out)
        self.levels.start(out)
        if self.rest is not None:
            self.rest.start(out)

    def emit(self, start: int, end: int, out: Out) -> None:
        """Levels, then the rest."""
        self.levels.emit(start, end, out)
        if self.rest is not None:
            self.rest.emit(start, end, out)


def emit_all(form: Form, count: int, out: Out) -> None:
    """All entries of a form."""
    form.start(out)
    for start, end in pieces(count):
        form.emit(start, end, out)


def best(forms: list[Form]) -> Form:
    """The form with the fewest symbols among those within a hundredth of the smallest; its ideal is the least
    of all."""
    least = min(form.size for form in forms)
    smallest = min(
        (form for form in forms if form.size <= WORTH * least), key=lambda form: (form.symbols, form.size)
    )
    smallest.ideal = min(form.ideal for form in forms)
    return smallest


def whole_form(bits: Array, kind: torch.dtype) -> Form:
    """The smallest form that knows nothing of grids."""
    form = entries_form(bits, kind)
    small = deflated(bits, form.size)
    return form if small is None else best([small, form]) if small.size < form.size else form


def entries_form(bits: Array, kind: torch.dtype) -> Form:
    """The smallest of stored, planes, palette and sparse."""
    if bits.size < 2:
        return RawForm(bits)
    present = bits != 0
    there = int(np.count_nonzero(present))
    forms = dense_forms(bits, kind)
    if 0 < there < bits.size and not (there > bits.size / 2 and isinstance(forms[-1], Palette)):
        forms.append(kept_form(bits, present.view(np.uint8), kind))
    return best(forms)


def kept_form(bits: Array, mask: Array, kind: torch.dtype) -> Form:
    """Entries where a mask (bytes of 0 and 1) keeps them; elsewhere they are zero."""
    before = np.concatenate(([0], np.cumsum(mask, dtype=np.int64)))
    cuts = [(int(before[start]), int(before[end])) for start, end in pieces(mask.size)]
    return SparseForm(Names(mask, 2), before, best(dense_forms(bits[mask != 0], kind, cuts)))


def dense_forms(bits: Array, kind: torch.dtype, cuts: Boundaries | None = None) -> list[Form]:
    """All forms of entries that are not about zeros, to be written in these stretches."""
    forms: list[Form] = [RawForm(bits)]
    if bits.size < 2:
        return forms
    palette = distinct(bits, MOST)
    if palette is not None and palette[0].size < bits.size:
        forms.append(Palette(*palette, kind, cuts))
    if len(forms) == 1 or forms[1].size > 0.5 * bits.nbytes:
        forms.append(PlanesForm(bits))
    return forms


def deflated(bits: Array, size: float) -> Form | None:
    """Through zlib, if that is smaller than ``size``; samples tell whether to try."""
    content = bits.tobytes()
    for length, level, hope in SAMPLES:
        sample = content[:length]
        if not content or len(zlib.compress(sample, level)) * len(content) > hope * size * len(sample):
            return None
    small = Deflated(zlib.compress(content, 9))
    return small if small.size < size else None


def grid_form(grid: Grid, levels: Form, wide: bool, kinds: dict[str, str], rest: Form | None = None) -> Form:
    """Levels (int32 where ``wide``, else int16) under their steps; ``kinds``: the number types of steps,
    offsets and columns, those that there are."""
    steps: list[tuple[str, Form, int]] = []
    for name in ("steps", "offsets", "columns"):
        numbers = getattr(grid, name)
        if numbers is not None:
            bits = bits_of(torch.from_numpy(np.ascontiguousarray(numbers)).to(DTYPES[kinds[name]]))
            steps.append((kinds[name], whole_form(bits, DTYPES[kinds[name]]), bits.size))
    return GridForm(grid, levels, wide, steps, rest)


def entropy(levels: Array) -> float:
    """Bytes of whole numbers by their entropy."""
    low = int(levels.min())
    return entropy_bits(np.bincount(levels.reshape(-1).astype(np.int64) - low)) / 8
