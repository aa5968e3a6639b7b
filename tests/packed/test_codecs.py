"""Tensors come back bit for bit, in a file at its entropy."""

import copy
import math
import zlib
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from torchlift.deploy import measure, save
from torchlift.models import LeNet5, ResNet
from torchlift.packed import symbols, tensors
from torchlift.packed.bounds import bound
from torchlift.packed.budget import Budget, PackedError
from torchlift.packed.byteflow import Sink, Source
from torchlift.packed.elements import DTYPES
from torchlift.packed.palettes import steps
from torchlift.packed.rans import Decoder, Segment, encode


def there_and_back(given: list[Tensor]) -> int:
    parts = tensors.write(given)
    plan = zlib.decompress(parts.plan)
    again = tensors.read(plan, memoryview(parts.raw), parts.lanes, memoryview(parts.code), Budget(2**30))
    for before, after in zip(given, again, strict=True):
        assert (before.dtype, before.shape) == (after.dtype, after.shape)
        assert octets(before) == octets(after)
    return parts.size


def octets(tensor: Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_every_dtype_comes_back_bit_for_bit(dtype):
    torch.manual_seed(0)
    kind = DTYPES[dtype]
    shapes = [torch.randn(7, 5).mul(50), torch.zeros(9), torch.empty(0, 3), torch.tensor(1.0), torch.ones(1)]
    sparse = torch.randn(300, 20).mul(50) * (torch.rand(300, 20) < 0.1)
    there_and_back([x.to(kind) for x in [*shapes, sparse, torch.randn(500, 40).round()]])


@given(
    st.floats(0, 1),
    st.sampled_from([1, 2, 3, 7, 40, 300, 5000, 10**6]),
    st.integers(1, 9000),
    st.integers(0, 99),
    st.sampled_from(["float32", "float16", "int16", "uint8", "complex128"]),
)
@settings(max_examples=60, deadline=None)
def test_any_bits_come_back_and_never_take_much_more_than_raw(density, levels, count, seed, dtype):
    """Random bits: signed zeros, infinities and NaNs of every payload among them."""
    rng = np.random.default_rng(seed)
    size = DTYPES[dtype].itemsize
    values = rng.integers(0, 256, (levels, size), dtype=np.uint8)
    entries = values[rng.integers(0, levels, count)]
    entries[rng.random(count) > density] = 0
    tensor = torch.from_numpy(entries.reshape(-1).copy()).view(DTYPES[dtype])
    assert there_and_back([tensor]) <= size * count + 200


def test_signed_zeros_and_nan_payloads_survive():
    payloads = torch.tensor([0x7FC00000, 0x7FC00001, 0x7F800001, -1, 0, -(2**31)], dtype=torch.int32)
    there_and_back([payloads.view(torch.float32).repeat(100), payloads.view(torch.float32)])


def test_large_palettes_are_coded_in_two_parts():
    torch.manual_seed(0)
    tensor = (torch.randn(300_000) * 3000).round() / 3000
    size = there_and_back([tensor])
    counts = Counter(tensor.tolist())
    assert len(counts) > 4096
    assert size < 1.02 * (entropy(counts) + 2 * len(counts)) + 2048


def entropy(counts: Counter) -> float:
    """Bytes, by the definition."""
    total = sum(counts.values())
    return sum(n * math.log2(total / n) for n in counts.values()) / 8


def projected(model: nn.Module, how: str) -> nn.Module:
    """Sparse, on a grid with a scale of its own per tensor, or both; norms and biases are left as they
    are."""
    torch.manual_seed(1)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            with torch.no_grad():
                if how != "sparse":
                    bits = {"ternary": 1, "mixed": 3, "8 bits": 7, "both": 3}[how]
                    scale = float(parameter.abs().max()) / 1.7
                    parameter.copy_((parameter / scale * 2**bits).round() / 2**bits * scale)
                if how in ("sparse", "both"):
                    parameter[torch.rand_like(parameter) < 0.9] = 0
    return model


def bound_by_hand(model: nn.Module) -> tuple[float, int]:
    """The entropy of weights as the issue defines it, and the bytes of what stays raw; neither knows of the
    codec."""
    coded, raw = 0.0, 0
    seen = {tensor.data_ptr(): tensor for tensor in model.state_dict().values()}  # tied ones once
    for tensor in seen.values():
        values = tensor.flatten().tolist()
        if tensor.ndim < 2:
            raw += tensor.numel() * tensor.element_size()
        elif len(set(values)) <= len(values) / 8:
            coded += entropy(Counter(values)) + 4 * len(set(values))
        else:
            kept = sum(value != 0 for value in values)
            coded += entropy(Counter(value != 0 for value in values)) + 4 * kept
    return coded, raw


@pytest.mark.parametrize("how", ["sparse", "ternary", "mixed", "8 bits", "both"])
@pytest.mark.parametrize("make", [LeNet5, lambda: ResNet(20, 16)])
def test_projected_models_are_at_their_entropy_bound(how, make, tmp_path):
    torch.manual_seed(0)
    model = projected(make(), how)
    coded, raw = bound_by_hand(model)
    size = save(model, tmp_path / "m.tl")
    assert size <= 1.02 * coded + 2048 + raw


def test_bound_bytes_is_the_entropy_and_everything_else():
    torch.manual_seed(0)
    grid = torch.randint(-3, 4, (1000,)) * 0.25
    assert bound(grid) == math.ceil(entropy(Counter(grid.tolist())) + 7 * 4)
    dense = torch.randn(1000)
    assert bound(dense) == 4000
    sparse = dense * (torch.arange(1000) % 10 == 0)
    sparse = torch.where(sparse == 0, torch.zeros(()), sparse)
    assert bound(sparse) == math.ceil(entropy(Counter({0: 900, 1: 100})) + 400)
    measured = measure(projected(nn.Linear(300, 300), "mixed"), torch.randn(1, 300), repeats=1)
    assert measured.file_bytes <= 1.02 * measured.bound_bytes + 100
    assert measured.bound_bytes <= measured.file_bytes + 300 * 4  # the bias is counted as it is


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scale", [1.0, 0.0371, 0.0029])
def test_a_grid_is_stored_by_its_step(kind, scale):
    """Odd multiples of several powers of two, times a scale, as learned precisions leave them."""
    grid = torch.tensor([0, *(odd / 2**p for p in range(5) for odd in range(-(2**p), 2**p + 1, 2))])
    values = grid.to(kind) * scale
    names = torch.randint(len(grid), (4000,), generator=torch.Generator().manual_seed(0))
    there_and_back([values[names] + 0])
    unsigned = {2: torch.int16, 4: torch.int32, 8: torch.int64}[kind.itemsize]
    bits = np.unique((values + 0).view(unsigned).numpy()).view(f"<u{kind.itemsize}")
    found = steps(bits, kind)
    assert found is not None
    assert np.abs(found[1]).max() <= 16 * 2


def test_the_same_content_is_stored_once_and_stays_apart():
    torch.manual_seed(0)
    one = torch.randn(1000)
    assert there_and_back([one, one.clone(), one.clone()]) < there_and_back([one]) + 20
    parts = tensors.write([one, one.clone()])
    first, second = tensors.read(
        zlib.decompress(parts.plan), memoryview(parts.raw), parts.lanes, memoryview(parts.code), Budget(2**30)
    )
    first.zero_()
    assert torch.equal(second, one)


def test_what_repeats_itself_is_not_larger_than_through_zlib():
    mask = torch.ones(256, 256, dtype=torch.bool).tril()
    assert there_and_back([mask]) < len(zlib.compress(octets(mask), 9)) + 100
    assert there_and_back([torch.arange(4096)]) < 8192


def test_every_tensor_is_paid_for_before_it_is_made():
    parts = tensors.write([torch.zeros(10**6), torch.ones(10**6)])
    plan = zlib.decompress(parts.plan)
    with pytest.raises(PackedError, match="limit"):
        tensors.read(plan, memoryview(parts.raw), parts.lanes, memoryview(parts.code), Budget(7 * 10**6))
    tensors.read(plan, memoryview(parts.raw), parts.lanes, memoryview(parts.code), Budget(11 * 10**6))


def test_a_model_is_not_changed_by_saving(tmp_path):
    model = LeNet5()
    before = copy.deepcopy(model.state_dict())
    save(model, tmp_path / "m.tl")
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_names_share_a_symbol_as_far_as_its_table_is_worth():
    """Fewer symbols read faster; a table of 2^8 is too dear for a small mask, one of 2^2 is not."""
    rng, found = np.random.default_rng(0), []
    for count in (16_000, 10**6):
        names = (rng.random(count) < 0.05).astype(np.uint8)
        sink, segments = Sink(), list[Segment]()
        symbols.write(names, 2, sink, segments)
        found.append(sink.data[0])
        assert segments[0].symbols.size == -(-count // sink.data[0])
        decoder = Decoder(*encode(segments, 16))
        again = symbols.read(count, np.array([0, 1], np.uint8), Source(bytes(sink.data)), decoder)
        np.testing.assert_array_equal(again, names)
    assert found == [2, 8]
    sink.data[0] = 0
    with pytest.raises(PackedError, match="groups of none"):
        symbols.read(count, np.array([0, 1], np.uint8), Source(bytes(sink.data)), decoder)
