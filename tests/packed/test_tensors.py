"""Tensors come back bit for bit with their records, at their entropy, each from a stream of its own."""

import io
import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from torchlift.packed import tensors
from torchlift.packed.budget import Budget, PackedError
from torchlift.packed.elements import DTYPES
from torchlift.packed.file import identical
from torchlift.packed.tensors import Item


def read(written: tensors.Written, budget: Budget | None = None) -> list[Item]:
    data = b"".join(written.streams)
    budget = budget or Budget(2**30, 2**16 + len(data))
    return list(tensors.read_items(written.plan, io.BytesIO(data), 0, len(data), budget))


def there_and_back(*items: Item | Tensor) -> tuple[int, int]:
    """Bytes of the streams, and the least that they must say."""
    originals = [item if isinstance(item, Item) else Item(item) for item in items]
    written = tensors.write_items(originals)
    for before, after in zip(originals, read(written), strict=True):
        for one, other in (
            (before.value, after.value), (before.step, after.step), (before.kept, after.kept),
        ):  # fmt: skip
            assert identical(one, other)
    return sum(map(len, written.streams)), written.ideal


def entropy(values: Tensor) -> float:
    counts = Counter(values.flatten().tolist())
    return sum(n * math.log2(values.numel() / n) for n in counts.values()) / 8


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_every_dtype_comes_back_bit_for_bit(dtype):
    torch.manual_seed(0)
    kind = DTYPES[dtype]
    shapes = [torch.randn(7, 5).mul(50), torch.zeros(9), torch.empty(0, 3), torch.tensor(1.0), torch.ones(1)]
    sparse = torch.randn(300, 20).mul(50) * (torch.rand(300, 20) < 0.1)
    there_and_back(*(x.to(kind) for x in [*shapes, sparse, torch.randn(500, 40).round()]))


@given(
    st.floats(0, 1),
    st.sampled_from([1, 2, 3, 7, 40, 300, 5000]),
    st.integers(1, 9000),
    st.integers(0, 99),
    st.sampled_from(["float32", "float16", "int16", "uint8", "complex128"]),
)
@settings(max_examples=30, deadline=None, derandomize=True)
def test_any_bits_come_back_and_never_take_much_more_than_raw(density, levels, count, seed, dtype):
    """Random bits: signed zeros, infinities and NaNs of every payload among them."""
    rng = np.random.default_rng(seed)
    size = DTYPES[dtype].itemsize
    values = rng.integers(0, 256, (levels, size), dtype=np.uint8)
    entries = values[rng.integers(0, levels, count)]
    entries[rng.random(count) > density] = 0
    tensor = torch.from_numpy(entries.reshape(-1).copy()).view(DTYPES[dtype])
    bytes_, least = there_and_back(tensor)
    assert least <= bytes_ + 1
    assert bytes_ <= size * count + 8


def on_rows(
    kind: torch.dtype, levels: int, rows: int = 300, columns: int = 700
) -> tuple[Tensor, Tensor, Tensor]:
    """Levels, a step per row, and their product as a projection leaves it."""
    torch.manual_seed(levels)
    whole = (torch.randn(rows, columns) * levels / 3).round().clamp(-levels, levels)
    step = (torch.rand(rows, 1) + 0.1).to(kind)
    return whole, step, (step.double() * whole).to(kind) + 0.0


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("levels", [1, 7, 127])
def test_recorded_weights_are_at_the_entropy_of_their_levels(kind, levels):
    whole, step, weight = on_rows(kind, levels)
    size, least = there_and_back(Item(weight, step))
    assert least <= size <= 1.02 * entropy(whole) + 300 * kind.itemsize + 64
    kept = torch.rand(weight.shape) < 0.1
    size, least = there_and_back(Item(weight * kept + 0.0, step, kept))
    mask = entropy(kept.double())
    assert least <= size <= 1.02 * (mask + entropy(whole[kept])) + 300 * kind.itemsize + 300


def test_records_keep_their_shapes_signs_and_zeros():
    _, step, weight = on_rows(torch.float32, 3, 8, 12)
    block = torch.rand(8, 3)
    blocks = (torch.randint(-3, 4, (8, 12)) * block.repeat_interleave(4, 1)) + 0.0
    one = torch.tensor(0.25)
    signed = weight.clone()
    signed[weight == 0] = -0.0
    far = torch.tensor([1e9, -2.0]) * 1.0
    kept = torch.ones(8, 12, dtype=torch.bool)
    for item in (
        Item(weight, step[:, 0]), Item(blocks, block), Item(torch.ones(3, 4) * 0.75, one),
        Item(signed, step), Item(far, torch.tensor(1.0)), Item(weight, step, kept),
        Item(signed, step, weight != 0), Item(torch.zeros(3, 3), None, torch.zeros(3, 3, dtype=torch.bool)),
        Item(torch.zeros(4, 4), one), Item(torch.randn(4, 4), None, torch.ones(4, 4, dtype=torch.bool)),
    ):  # fmt: skip
        there_and_back(item)


def test_the_same_content_is_stored_once_and_stays_apart():
    torch.manual_seed(0)
    one = torch.randn(1000)
    alone, _ = there_and_back(one)
    assert there_and_back(one, one.clone(), one.clone())[0] == alone
    first, second = read(tensors.write_items([Item(one), Item(one.clone())]))
    first.value.zero_()
    assert torch.equal(second.value, one)


def test_a_tensor_of_many_stretches_and_many_values_comes_back():
    torch.manual_seed(0)
    there_and_back((torch.randn(150_000) * 3000).round() / 3000)
    mask = torch.rand(150_000) < 0.01
    there_and_back(torch.randn(150_000) * mask, Item(torch.randn(150_000) * mask, None, mask))
    there_and_back(torch.ones(400, 400, dtype=torch.bool).tril(), torch.arange(150_000))


@pytest.mark.parametrize("levels", [1, 2, 7])
@pytest.mark.parametrize("density", [0.001, 0.4])
def test_masks_and_few_values_over_many_stretches_come_back(levels, density):
    """The entries that a mask keeps fall into stretches of any length; groups of names begin anew in each."""
    torch.manual_seed(levels)
    whole = torch.randint(-levels, levels + 1, (900, 1001))
    whole[torch.rand(whole.shape) < 1e-4] = 2 * levels  # so rare that most groups never hold it
    kept = torch.rand(whole.shape) < density
    weight = whole * kept * 0.37 + 0.0
    there_and_back(weight, Item(weight, torch.tensor(0.37), kept), Item(weight, None, kept))


def test_any_tensor_can_be_read_without_the_others():
    torch.manual_seed(0)
    items = [Item(torch.randn(50, 20)), Item(torch.randint(0, 3, (900,)).float()), Item(torch.randn(7))]
    written = tensors.write_items(items)
    first = len(written.streams[0])
    hole = b"\0" * first + b"".join(written.streams[1:])  # the first one's bytes are gone
    reader = tensors.TensorReader(written.plan, io.BytesIO(hole), 0, len(hole), Budget(2**20, 2**16))
    assert identical(reader.read(2).value, items[2].value)
    assert identical(reader.read(1).value, items[1].value)


def test_every_tensor_is_paid_for_before_it_is_made():
    written = tensors.write_items([Item(torch.zeros(10**6)), Item(torch.ones(10**6))])
    with pytest.raises(PackedError, match="limit"):
        read(written, Budget(7 * 10**6))
    read(written, Budget(9 * 10**6))


def test_code_with_too_few_lanes_raises():
    """A byte of code may not stand for hours of decoding."""
    written = tensors.write_items([Item((torch.rand(200_000) < 1e-4).float())])
    with pytest.raises(PackedError, match="too long"):
        read(written, Budget(2**30, 10))
