"""Tensors with their storage records as a plan, which describes them, and a stream for each of them.

A stream is raw bytes and then code (a 32-bit state per lane, 16-bit words); its length stands in the plan, so
that any tensor can be read without the others. The same content is written once.
"""

import dataclasses
import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from torchlift.core.stored import levels_of
from torchlift.errors import TorchliftError
from torchlift.packed import foreign, rans
from torchlift.packed.budget import Budget, PackedError, bounded_product
from torchlift.packed.byteflow import ByteSink, ByteSource, Cursor
from torchlift.packed.decoding import (
    FLOATS,
    Entries,
    GridEntries,
    SparseEntries,
    TensorSource,
    entries,
    read_all,
)
from torchlift.packed.elements import BITS, DTYPES, bits_of, tensor_of
from torchlift.packed.forms import Form, Out, emit_all, grid_form, kept_form, whole_form
from torchlift.packed.grids import Grid, negative_zero
from torchlift.packed.rans import Array

NAMES = list(DTYPES)
OBJECT = 1024
"""What a tensor takes beside its entries, about."""
WITH_STEP, WITH_MASK, MASK_APART = 1, 2, 4
SHORT = 2**15 - 1
TOGETHER = 1 << 20
"""Symbols of small tensors that are coded at once."""


@dataclasses.dataclass(frozen=True)
class Item:
    """A tensor and what is recorded of it."""

    value: Tensor
    step: Tensor | None = None
    kept: Tensor | None = None

    @property
    def name(self) -> str:
        """The number type by name."""
        return str(self.value.dtype).removeprefix("torch.")


@dataclasses.dataclass(frozen=True)
class Written:
    """Items, written down: the plan, the streams or their sizes alone, and the least that they must take."""

    plan: bytes
    streams: list[bytes]
    ideal: int
    size: int


def write_items(items: Sequence[Item], *, keep: bool = True) -> Written:
    """All items, the same content once; without ``keep`` only sizes are kept of the streams."""
    plan, streams, ideal, size = ByteSink(), list[bytes](), 0.0, 0
    plan.number(len(items))
    for batch in batches(items):
        drafts = [draft for draft in batch if isinstance(draft, Draft)]
        codes = iter(rans.encode_lanes([(draft.segments, draft.lanes) for draft in drafts]))
        for draft in batch:
            if isinstance(draft, Draft):
                stream = draft.finish(plan, *next(codes))
                size += len(stream)
                streams += [stream] if keep else []
                ideal += draft.form.ideal + (0.0 if draft.apart is None else draft.apart.ideal)
            else:
                plan.number(len(NAMES))
                plan.number(draft)
    return Written(bytes(plan.data), streams, math.ceil(ideal), size)


def batches(items: Sequence[Item]) -> Iterator[list["Draft | int"]]:
    """Items ready to be coded together, in order; in place of one that came before, how far back that is."""
    first_of: dict[bytes, int] = {}
    batch: list[Draft | int] = []
    symbols = 0
    for number, item in enumerate(items):
        earlier = first_of.setdefault(identity(item), number)
        draft = number - earlier if earlier != number else draft_of(item)
        symbols += 0 if isinstance(draft, int) else sum(s.symbols.size for s in draft.segments)
        batch.append(draft)
        if symbols > TOGETHER:
            yield batch
            batch, symbols = [], 0
    yield batch


def identity(item: Item) -> bytes:
    """A digest of content, type, shape and record."""
    if item.name not in DTYPES:
        raise TorchliftError(f"save: tensors of {item.value.dtype} have no packed form.")
    digest = hashlib.sha256()
    for tensor in (item.value, item.step, item.kept):
        digest.update(b"-" if tensor is None else f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        if tensor is not None and tensor.numel():
            digest.update(bits_of(tensor).data)
    return digest.digest()


@dataclasses.dataclass(frozen=True)
class Draft:
    """An item as it will be written: everything but its code."""

    item: Item
    form: Form
    apart: Form | None
    record: int
    raw: bytes
    segments: list[rans.Segment]
    lanes: int

    def finish(self, plan: ByteSink, states: Array, words: Array) -> bytes:
        """The stream; its description is appended to the plan."""
        item = self.item
        code = states.astype("<u4").tobytes() + words.astype("<u2").tobytes()
        said = ByteSink()
        if item.step is not None:
            said.number(item.step.ndim)
        self.form.describe(said)
        if self.apart is not None:
            self.apart.describe(said)
        sizes = (len(self.raw), len(code), self.lanes, len(said.data))
        for number in (NAMES.index(item.name), item.value.ndim, *item.value.shape, self.record, *sizes):
            plan.number(number)
        plan.bytes(bytes(said.data))
        return self.raw + code


def draft_of(item: Item) -> Draft:
    """The form of an item, written out but for its code."""
    form, apart, record = form_of(item)
    out, count = Out(), entry_count(item.value)
    emit_all(form, count, out)
    if apart is not None:
        emit_all(apart, count, out)
    coded = [segment for segment in out.segments if segment.says]
    raw = b"".join(out.raw)
    symbols = sum(segment.symbols.size for segment in coded)
    lanes = rans.lanes_for(form.size - len(raw), symbols) if coded else 0
    return Draft(item, form, apart, record, raw, coded, lanes)


def entry_count(tensor: Tensor) -> int:
    """Units of a tensor: complex128 has two an entry."""
    return tensor.numel() * max(1, tensor.element_size() // 8)


def form_of(item: Item) -> tuple[Form, Form | None, int]:
    """The form of an item, that of its mask where it stands apart, and what is recorded."""
    bits, kind = bits_of(item.value), item.value.dtype
    if not item.value.numel() or (item.step is None and item.kept is None):
        return foreign.smallest(bits, kind, tuple(item.value.shape)), None, 0
    kept = None if item.kept is None else bits_of(item.kept)
    record = WITH_STEP * (item.step is not None) | WITH_MASK * (kept is not None)
    whole, grid = bits, None
    if item.step is not None:
        levels, grid = recorded_grid(item, bits)
        whole = levels.view(BITS[levels.itemsize])
        kind = torch.int16 if levels.itemsize == 2 else torch.int32
    apart = None if kept is None or not whole[kept == 0].any() else whole_form(kept, torch.bool)
    form = whole_form(whole, kind) if kept is None or apart is not None else kept_form(whole, kept, kind)
    if grid is not None:
        assert item.step is not None
        steps_kind = str(item.step.dtype).removeprefix("torch.")
        form = grid_form(grid, form, kind == torch.int32, {"steps": steps_kind})
    return form, apart, record | MASK_APART * (apart is not None)


def recorded_grid(item: Item, bits: Array) -> tuple[Array, Grid]:
    """Levels under the recorded step, −0.0 marked where the weight has it."""
    assert item.step is not None
    step = item.step.detach().cpu()
    if str(step.dtype).removeprefix("torch.") not in FLOATS.get(item.value.dtype, ()):
        raise TorchliftError(f"save: a weight of {item.value.dtype} has a step of {step.dtype}.")
    levels = levels_of(item.value.detach().cpu(), step).flatten().numpy().astype("<i4")
    if not levels.size or max(-int(levels.min()), int(levels.max())) < SHORT:
        levels = levels.astype("<i2")
    levels[bits == 1 << 8 * bits.itemsize - 1] = negative_zero(levels)
    shape = tuple(item.value.shape)
    blocks = [*step.shape, *[1] * (len(shape) - step.ndim)]
    numbers = (step if step.dtype == torch.float64 else step.float()).numpy().reshape(blocks)
    return levels, Grid(shape, numbers)


@dataclasses.dataclass(frozen=True)
class Head:
    """What the plan says of an item: enough to read it alone."""

    kind: torch.dtype
    shape: list[int]
    same: int | None = None
    """The number of the item that has the same content; the rest is then its."""
    record: int = 0
    at: int = 0
    raw: int = 0
    code: int = 0
    lanes: int = 0
    said: bytes = b""

    @property
    def bytes(self) -> int:
        """Memory of the item and its mask."""
        count = bounded_product(self.shape)
        return count * (self.kind.itemsize + 2 * bool(self.record & WITH_MASK))


class TensorReader:
    """All items of a file by number; all are paid for before one is made."""

    def __init__(self, plan: bytes, file: BinaryIO, start: int, end: int, budget: Budget) -> None:
        source, self.file, self.budget = ByteSource(plan), file, budget
        self.heads: list[Head] = []
        for _ in range(source.number(len(plan))):
            budget.take(OBJECT, "a tensor")
            head = self.head(source, start, end)
            start = start if head.same is not None else start + head.raw + head.code
            self.heads.append(head)
        source.close()
        if start != end:
            raise PackedError("there are bytes after the last stream.")

    def head(self, source: ByteSource, start: int, end: int) -> Head:
        """The next item's."""
        number = source.number(len(NAMES))
        if number == len(NAMES):
            back = source.number(len(self.heads))
            if not back:
                raise PackedError("a tensor is the same as itself.")
            first = self.heads[-back]
            return dataclasses.replace(
                first, same=len(self.heads) - back if first.same is None else first.same
            )
        shape = [source.number() for _ in range(source.number(64))]
        record = source.number(WITH_STEP | WITH_MASK | MASK_APART)
        raw, code = source.number(end - start), source.number(end - start)
        if raw + code > end - start:
            raise PackedError("a stream lies outside the file.")
        lanes = source.number(rans.MOST_LANES)
        said = bytes(source.bytes(source.number()))
        return Head(DTYPES[NAMES[number]], shape, None, record, start, raw, code, lanes, said)

    def read(self, number: int) -> Item:
        """One item."""
        head = self.heads[number]
        self.budget.take(head.bytes, "a tensor")
        decoder = rans.Decoder(Cursor(self.file, head.at + head.raw, head.code), head.lanes, self.budget)
        reading = TensorSource(
            ByteSource(head.said), Cursor(self.file, head.at, head.raw), decoder, self.budget
        )
        dimensions = reading.plan.number(len(head.shape)) if head.record & WITH_STEP else 0
        count = bounded_product(head.shape)
        tensor_entries = entries(reading, head.kind, head.shape)
        kept = self.collected(tensor_entries, head.record)
        units = count * max(1, head.kind.itemsize // 8)
        value = tensor_of(read_all(tensor_entries, units), head.kind, head.shape)
        mask: Tensor | None = None
        if head.record & MASK_APART:
            mask = tensor_of(
                read_all(entries(reading, torch.bool, head.shape), count), torch.bool, head.shape
            )
        elif kept is not None:
            mask = tensor_of(np.concatenate(kept) if kept else np.empty(0, bool), torch.bool, head.shape)
        reading.close()
        return Item(value, recorded_step(tensor_entries, head.record, dimensions), mask)

    def collected(self, tensor_entries: Entries, record: int) -> list[Array] | None:
        """Where the mask will be collected, if a record says that the entries have one."""
        if not record & WITH_MASK and record & MASK_APART:
            raise PackedError("a tensor has a mask that it does not have.")
        if not record & WITH_MASK or record & MASK_APART:
            return None
        inner = tensor_entries.levels if isinstance(tensor_entries, GridEntries) else tensor_entries
        if not isinstance(inner, SparseEntries):
            raise PackedError("a tensor whose record has a mask has none in the file.")
        inner.kept = []
        return inner.kept


def recorded_step(tensor_entries: Entries, record: int, dimensions: int) -> Tensor | None:
    """The step that a record says the tensor has, in the shape it had."""
    if not record & WITH_STEP:
        return None
    if not isinstance(tensor_entries, GridEntries) or tensor_entries.inexact:
        raise PackedError("a tensor whose record has a step has none in the file.")
    numbers = tensor_entries.grid.steps
    if any(size != 1 for size in numbers.shape[dimensions:]):
        raise PackedError("the step of a tensor has more dimensions than it says.")
    return torch.from_numpy(numbers.reshape(numbers.shape[:dimensions]).copy()).to(tensor_entries.step_kind)


def read_items(plan: bytes, streams: BinaryIO, start: int, end: int, budget: Budget) -> Iterator[Item]:
    """All items, one after the other."""
    reader = TensorReader(plan, streams, start, end, budget)
    for number in range(len(reader.heads)):
        yield reader.read(number)
