"""Tensors as bytes and back, exactly; the smallest of several forms is kept.

stored:    the entries, least byte first.
deflated:  the same through zlib, for what repeats itself.
planes:    all first bytes of the entries, then all second bytes, …: each plane coded where that makes it
           smaller (signs and exponents of trained weights take three bits of eight).
palette:   the distinct values, at most 65,536 of them, and the coded name of each entry's.
sparse:    a coded mask (1 where an entry's bits are not all zero), then the entries that are there, in
           another form.
rows:      the step of each row, and whole numbers: the entries are their products (rowgrids).
same:      as an earlier tensor.
"""

import dataclasses
import zlib

import numpy as np
import torch

from torchlift.packed import palettes, rowgrids, symbols
from torchlift.packed.byteflow import Sink
from torchlift.packed.decoding import DEFLATED, PALETTE, PLANES, ROWS, SPARSE, STORED
from torchlift.packed.elements import distinct
from torchlift.packed.frequencies import entropy_bits, fit
from torchlift.packed.rans import Array, Segment

SAMPLE = 1 << 16


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

    def then(self, rest: "Form") -> "Form":
        """This one, and another after it."""
        plan = Sink()
        plan.bytes(bytes(self.plan.data + rest.plan.data))
        segments = [*self.segments, *rest.segments]
        return Form(plan, [*self.raw, *rest.raw], segments, self.size + rest.size)


def encode(bits: Array, kind: torch.dtype, rows: int = 0) -> Form:
    """The smallest form of a tensor's bits, in so many rows (0: none); of nearly equal ones that with the
    fewest symbols, which reads faster."""
    found = plain(bits, kind)
    found = by_rows(bits, kind, rows, found.size) or found
    return deflated(bits, found.size) or found


def plain(bits: Array, kind: torch.dtype) -> Form:
    """The smallest form that knows nothing of rows."""
    present = bits != 0
    if not bits.size or present.all() or not present.any():
        return best(dense_forms(bits, kind))
    form = Form()
    form.plan.number(SPARSE)
    form.size = 1 + symbols.write(present.view(np.uint8), 2, form.plan, form.segments)
    form.plan.number(int(present.sum()))
    return best([*dense_forms(bits, kind), form.then(best(dense_forms(bits[present], kind)))])


def by_rows(bits: Array, kind: torch.dtype, rows: int, size: float) -> Form | None:
    """Steps and whole numbers, if that is smaller than ``size``; their entropy tells whether to try. With one
    step for all rows a palette says the same."""
    found = rowgrids.split(bits, kind, rows)
    if found is None:
        return None
    steps, whole = found
    if np.unique(steps[steps != 0]).size < 2:
        return None
    form = Form()
    form.plan.number(ROWS)
    form = form.then(best(dense_forms(steps, kind)))
    if form.size + entropy_bits(np.bincount(whole.reshape(-1).view("<u2"))) / 8 >= size:
        return None
    form = form.then(plain(whole.reshape(-1).view("<u2"), torch.int16))
    return form if form.size < size else None


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
