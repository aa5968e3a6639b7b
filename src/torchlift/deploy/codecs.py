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
from torchlift.deploy.byteflow import Sink
from torchlift.deploy.decoding import DEFLATED, PALETTE, PLANES, SPARSE, STORED
from torchlift.deploy.elements import distinct
from torchlift.deploy.frequencies import fit
from torchlift.deploy.rans import Array, Segment

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
