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
from torchlift.packed.budget import Budget, PackedError, product
from torchlift.packed.byteflow import Cursor, Sink, Source
from torchlift.packed.decoding import (
    FLOATS,
    Entries,
    GridEntries,
    Reading,
    SparseEntries,
    entries,
    read_all,
)
from torchlift.packed.elements import BITS, DTYPES, bits_of, tensor_of
from torchlift.packed.forms import Form, Out, Sparse, best, dense_forms, grid_form, whole_form
from torchlift.packed.grids import Grid, negative_zero
from torchlift.packed.rans import Array
from torchlift.packed.symbols import Names, pieces

NAMES = list(DTYPES)
OBJECT = 1024
"""What a tensor takes beside its entries, about."""
WITH_STEP, WITH_MASK, MASK_APART = 1, 2, 4
SHORT = 2**15 - 1


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
    """Items, written down: the plan, the streams, and the least that they must take."""

    plan: bytes
    streams: list[bytes]
    ideal: int


def write(items: Sequence[Item]) -> Written:
    """All items, the same content once."""
    plan, streams, ideal = Sink(), list[bytes](), 0.0
    known: dict[bytes, int] = {}
    plan.number(len(items))
    for number, item in enumerate(items):
        earlier = known.setdefault(identity(item), number)
        if earlier != number:
            plan.number(len(NAMES))
            plan.number(number - earlier)
            continue
        plan.number(NAMES.index(item.name))
        plan.number(item.value.ndim)
        for size in item.value.shape:
            plan.number(size)
        stream, least = write_one(item, plan)
        streams.append(stream)
        ideal += least
    return Written(bytes(plan.data), streams, math.ceil(ideal))


def identity(item: Item) -> bytes:
    """A digest of content, type, shape and record."""
    if item.name not in DTYPES:
        raise TorchliftError(f"save: tensors of {item.value.dtype} have no packed form.")
    found = hashlib.sha256()
    for tensor in (item.value, item.step, item.kept):
        found.update(b"-" if tensor is None else f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        if tensor is not None and tensor.numel():
            found.update(bits_of(tensor).data)
    return found.digest()


def write_one(item: Item, plan: Sink) -> tuple[bytes, float]:
    """One item's description, appended to the plan; its stream and the least that it must take."""
    form, apart, record = form_of(item)
    out, count = Out(), entry_count(item.value)
    for part in (form, apart):
        for begin, end in pieces(count) if part is not None else ():
            part.emit(begin, end, out)
    coded = [segment for segment in out.segments if segment.says]
    raw = b"".join(out.raw)
    symbols = sum(segment.symbols.size for segment in coded)
    lanes = rans.lanes_for(form.size - len(raw), symbols) if coded else 0
    states, words = rans.encode(coded, lanes) if coded else (np.empty(0, "<u4"), np.empty(0, "<u2"))
    code = states.astype("<u4").tobytes() + words.astype("<u2").tobytes()
    plan.number(record)
    plan.number(len(raw))
    plan.number(len(code))
    plan.number(lanes)
    if record & WITH_STEP:
        assert item.step is not None
        plan.number(item.step.ndim)
    form.describe(plan)
    if apart is not None:
        apart.describe(plan)
    return raw + code, form.ideal + (0.0 if apart is None else apart.ideal)


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
    form = whole_form(whole, kind) if kept is None or apart is not None else masked_form(whole, kept, kind)
    if grid is not None:
        assert item.step is not None
        steps_kind = str(item.step.dtype).removeprefix("torch.")
        form = grid_form(grid, form, kind == torch.int32, {"steps": steps_kind})
    return form, apart, record | MASK_APART * (apart is not None)


def masked_form(bits: Array, kept: Array, kind: torch.dtype) -> Form:
    """Entries where a mask keeps them; elsewhere they are zero."""
    before = np.concatenate(([0], np.cumsum(kept, dtype=np.int64)))
    return Sparse(Names(kept, 2), before, best(dense_forms(bits[kept != 0], kind)))


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
    """Where an item lies and how it is described: enough to read it alone."""

    kind: torch.dtype
    shape: list[int]
    same: int | None = None
    """The number of the item that has the same content."""


class Plan:
    """Reads items in order; each is paid for before it is made."""

    def __init__(self, plan: bytes, file: BinaryIO, begin: int, end: int, budget: Budget) -> None:
        self.source, self.file, self.budget = Source(plan), file, budget
        self.at, self.end = begin, end
        self.count = self.source.number(len(plan))
        self.items: list[Item] = []

    def head(self) -> Head:
        """Type and shape of the next item."""
        number = self.source.number(len(NAMES))
        if number < len(NAMES):
            shape = [self.source.number() for _ in range(self.source.number(64))]
            return Head(DTYPES[NAMES[number]], shape)
        back = self.source.number(len(self.items))
        if not back:
            raise PackedError("a tensor is the same as itself.")
        same = len(self.items) - back
        value = self.items[same].value
        return Head(value.dtype, list(value.shape), same)

    def read(self, head: Head) -> Item:
        """The item that a head stands for."""
        self.budget.take(OBJECT, "a tensor")
        if head.same is not None:
            item = copied(self.items[head.same], self.budget)
        else:
            item = self.read_new(head)
        self.items.append(item)
        return item

    def read_new(self, head: Head) -> Item:
        """An item with a stream of its own."""
        count = product(head.shape)
        self.budget.take(count * head.kind.itemsize, "a tensor")
        record = self.source.number(WITH_STEP | WITH_MASK | MASK_APART)
        raw, code = self.source.number(self.end - self.at), self.source.number(self.end - self.at)
        if raw + code > self.end - self.at:
            raise PackedError("a stream lies outside the file.")
        lanes = self.source.number(rans.MOST_LANES)
        decoder = rans.Decoder(Cursor(self.file, self.at + raw, code), lanes, self.budget)
        reading = Reading(self.source, Cursor(self.file, self.at, raw), decoder, self.budget)
        self.at += raw + code
        dimensions = self.source.number(len(head.shape)) if record & WITH_STEP else 0
        found = entries(reading, head.kind, head.shape)
        kept = self.masks(found, record, count)
        mask = entries(reading, torch.bool, head.shape) if record & MASK_APART else None
        value = tensor_of(
            read_all(found, count * max(1, head.kind.itemsize // 8)), head.kind, head.shape
        )
        held = None
        if kept is not None:
            held = tensor_of(np.concatenate(kept) if kept else np.empty(0, np.bool_), torch.bool, head.shape)
        elif mask is not None:
            held = tensor_of(read_all(mask, count), torch.bool, head.shape)
        reading.close()
        return Item(value, recorded_step(found, record, dimensions, head.kind), held)

    def masks(self, found: Entries, record: int, count: int) -> list[Array] | None:
        """Where the mask will be collected, if a record says that there is one."""
        if not record & WITH_MASK:
            if record & MASK_APART:
                raise PackedError("a tensor has a mask that it does not have.")
            return None
        self.budget.take(2 * count, "a mask")
        if record & MASK_APART:
            return None
        inner = found.levels if isinstance(found, GridEntries) else found
        if not isinstance(inner, SparseEntries):
            raise PackedError("a tensor has no mask where it says so.")
        inner.kept = []
        return inner.kept

    def close(self) -> None:
        """Nothing is left."""
        self.source.close()
        if self.at != self.end:
            raise PackedError("there are bytes after the last stream.")


def recorded_step(found: Entries, record: int, dimensions: int, kind: torch.dtype) -> Tensor | None:
    """The step that a record says the tensor has, in the shape it had."""
    if not record & WITH_STEP:
        return None
    if not isinstance(found, GridEntries) or found.grid.columns is not None or found.grid.offsets is not None:
        raise PackedError("a tensor has no step where it says so.")
    numbers = found.grid.steps
    if any(size != 1 for size in numbers.shape[dimensions:]):
        raise PackedError("the step of a tensor has more dimensions than it says.")
    return torch.from_numpy(numbers.reshape(numbers.shape[:dimensions]).copy()).to(found.step_kind)


def copied(item: Item, budget: Budget) -> Item:
    """The same content in memory of its own."""
    held = [t for t in (item.value, item.step, item.kept) if t is not None]
    budget.take(sum(t.numel() * t.element_size() for t in held), "a tensor")
    return Item(*(None if t is None else t.clone() for t in (item.value, item.step, item.kept)))  # pyright: ignore[reportArgumentType]


def read(plan: bytes, streams: BinaryIO, begin: int, end: int, budget: Budget) -> Iterator[Item]:
    """All items, one after the other."""
    reader = Plan(plan, streams, begin, end, budget)
    for _ in range(reader.count):
        yield reader.read(reader.head())
    reader.close()
