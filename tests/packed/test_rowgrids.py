"""Rows on grids of their own: exact, at their entropy, and refused where a file lies about them."""

import random
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import forging  # noqa: F401  (finds the fuzzers' generators)
from torchlift.packed import rowgrids, tensors
from torchlift.packed.bounds import bound
from torchlift.packed.budget import Budget, PackedError
from torchlift.packed.byteflow import Sink, Source
from torchlift.packed.codecs import encode
from torchlift.packed.decoding import PALETTE, ROWS, SPARSE, STORED, Reading, decode
from torchlift.packed.elements import bits_of
from torchlift.packed.rans import Decoder
from torchlift.packed.tensors import rows_of

KINDS = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def form_of(tensor: Tensor) -> int:
    return encode(bits_of(tensor), tensor.dtype, rows_of(tensor.shape)).plan.data[0]


def there_and_back(given: Tensor) -> int:
    parts = tensors.write([given])
    plan = zlib.decompress(parts.plan)
    (again,) = tensors.read(plan, memoryview(parts.raw), parts.lanes, memoryview(parts.code), Budget(2**30))
    assert (again.dtype, again.shape) == (given.dtype, given.shape)
    assert bits_of(again).tobytes() == bits_of(given).tobytes()
    return parts.size


def short(count: int, rng: np.random.Generator) -> np.ndarray:
    """Scales of eight significant bits."""
    return np.ldexp(rng.integers(128, 256, count).astype(float), rng.integers(-16, -4, count))


def multiples(rows: int, columns: int, levels: int, rng: np.random.Generator) -> np.ndarray:
    spread = max(0.6, levels / 3)
    return np.rint(rng.normal(0, spread, (rows, columns))).clip(-levels, levels)


def product(whole: np.ndarray, scales: np.ndarray, kind: torch.dtype) -> Tensor:
    """round(k·step), once, with steps of the type."""
    steps = torch.from_numpy(scales).to(kind).double()
    found = torch.from_numpy(whole) * steps[:, None] + 0.0
    with np.errstate(over="ignore"):
        return torch.from_numpy(found.numpy().astype(np.float16)) if kind == torch.float16 else found.to(kind)


@given(
    st.sampled_from(KINDS),
    st.integers(2, 40),
    st.integers(1, 60),
    st.sampled_from([1, 3, 7, 127, 2000, 32767]),
    st.sampled_from(["short", "any", "equal", "tiny"]),
    st.floats(0, 1),
    st.sampled_from(["", "zero rows", "negative zero", "negative rows", "one size", "infinite", "nan"]),
    st.integers(0, 99),
)
@settings(max_examples=150, deadline=None)
def test_rows_come_back_bit_for_bit(kind, rows, columns, levels, scales, density, odd, seed):
    rng = np.random.default_rng(seed)
    scale = {
        "short": short(rows, rng),
        "any": rng.random(rows).astype(np.float32).astype(float) * 0.1,
        "equal": np.full(rows, 0.037),
        "tiny": np.full(rows, 1e-7) * rng.random(rows),  # subnormal in half precision
    }[scales]
    whole = multiples(rows, columns, levels, rng) * (rng.random((rows, columns)) < density)
    if odd == "one size":
        whole[::2] = np.sign(whole[::2])
    tensor = product(whole, scale, kind)
    if odd == "zero rows":
        tensor[::3] = 0
    elif odd == "negative rows":
        tensor[::3] *= -1
    elif odd:
        value = {"negative zero": -0.0, "infinite": torch.inf, "nan": torch.nan}.get(odd, 0.0)
        tensor[rows // 2, columns // 2] = value
    found = rowgrids.split(bits_of(tensor), kind, rows)
    assert found is None or odd not in ("infinite", "nan")
    size = there_and_back(tensor)
    assert size <= tensor.numel() * kind.itemsize + 200
    there_and_back(tensor.reshape(rows, columns, 1, 1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scales", ["short", "any"])
@pytest.mark.parametrize("levels", [1, 127])
def test_rows_are_at_their_entropy(kind, scales, levels):
    rng = np.random.default_rng(0)
    scale = short(300, rng) if scales == "short" else rng.random(300) + 0.1
    whole = multiples(300, 700, levels, rng)
    whole[5] = 0
    whole[6] = np.sign(whole[6])
    tensor = product(whole, scale, kind)
    assert form_of(tensor) == ROWS
    counts = np.unique(whole, return_counts=True)[1]
    entropy = float((counts * np.log2(whole.size / counts)).sum()) / 8
    assert bound(tensor) <= 1.001 * entropy + 300 * kind.itemsize + 16
    assert there_and_back(tensor) <= 1.02 * bound(tensor) + 300


@pytest.mark.parametrize("kind", KINDS)
def test_rows_by_a_negative_factor_have_a_negative_step(kind):
    rng = np.random.default_rng(0)
    whole = multiples(30, 50, 3, rng)
    whole[3] = 0
    tensor = product(whole, short(30, rng), kind)
    tensor[::3] *= -1
    assert bool(torch.signbit(tensor[tensor == 0]).any())
    found = rowgrids.split(bits_of(tensor), kind, 30)
    assert found is not None
    assert np.signbit(rowgrids.numbers(found[0], kind)).tolist() == [row % 3 == 0 for row in range(30)]
    assert form_of(tensor) == ROWS
    there_and_back(tensor)
    tensor[0, int((tensor[0] == 0).nonzero()[0])] = 0.0  # zeros of both signs in one row
    assert rowgrids.split(bits_of(tensor), kind, 30) is None
    there_and_back(tensor)


def test_steps_have_few_bits_where_they_may():
    rng = np.random.default_rng(0)
    scale = short(50, rng)
    found = rowgrids.split(
        bits_of(product(multiples(50, 90, 127, rng), scale, torch.float32)), torch.float32, 50
    )
    assert found is not None
    np.testing.assert_array_equal(found[0].view("<f4"), scale)
    assert form_of(torch.randint(-3, 4, (50, 90)) * torch.from_numpy(scale).float()[:, None] + 0.0) == ROWS


def test_what_is_not_on_rows_of_grids_is_as_before():
    """Weights as trained, weights on one grid, rows of a few entries."""
    torch.manual_seed(0)
    for tensor in (torch.randn(400, 50), torch.randn(64, 16, 3, 3).bfloat16(), torch.randn(300, 9).half(),
                   torch.randn(2000, 2), (torch.randn(200, 60) * 8).round() * 0.037 + 0.0):  # fmt: skip
        bits = bits_of(tensor)
        assert encode(bits, tensor.dtype, len(tensor)).size == encode(bits, tensor.dtype).size
    assert bound(torch.randn(400, 50)) == 400 * 50 * 4


def reading(plan: Sink, raw: bytes = b"", limit: int = 2**20) -> Reading:
    return Reading(
        Source(bytes(plan.data)), Source(raw), Decoder(np.empty(0, "<u4"), np.empty(0, "<u2")), Budget(limit)
    )


def planned(*numbers: int) -> Sink:
    sink = Sink()
    for number in numbers:
        sink.number(number)
    return sink


def test_rows_that_are_none_are_refused():
    steps, whole = np.float32([0.5, 3]).tobytes(), np.int16([[1, -2], [0, 7]]).tobytes()
    good = planned(ROWS, STORED, STORED)
    found = decode(reading(good, steps + whole), 4, torch.float32, 2)
    assert found.view("<f4").tolist() == [0.5, -1, 0, 21]
    for kind, rows in ((torch.float32, 0), (torch.int16, 2), (torch.float32, 5), (torch.complex64, 2)):
        with pytest.raises(PackedError, match="rows"):
            decode(reading(good, steps + whole), 4, kind, rows)
    for nested in ((ROWS, ROWS), (ROWS, SPARSE), (ROWS, STORED, ROWS), (SPARSE, ROWS), (ROWS, 9)):
        with pytest.raises(PackedError):
            decode(reading(planned(*nested, *[STORED] * 5), (steps + whole) * 9), 4, torch.float32, 2)
    with pytest.raises(PackedError, match="outside the file"):
        decode(reading(good, (steps + whole)[:-1]), 4, torch.float32, 2)
    with pytest.raises(PackedError, match="limit"):
        decode(reading(good, b"", 2**20), 2**20, torch.float32, 2)


def test_palettes_of_whole_numbers_stay_in_their_type():
    for first in (2**17, 2 * 32768, 2 * 32769 - 1):  # out of range: 65536, 32768, -32769
        plan = planned(ROWS, STORED, PALETTE, 1, 2, first)
        with pytest.raises(PackedError, match="int16"):
            decode(reading(plan, np.float32([0.5, 3]).tobytes()), 4, torch.float32, 2)
    plan = planned(PALETTE, 1, 2, 2)
    with pytest.raises(PackedError, match="int16"):
        decode(reading(plan), 4, torch.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_changed_plans_and_codes_of_rows_are_refused_or_read(kind):
    """Thousands of changes to the parts of one tensor; memory is asked for first, nothing else escapes."""
    from packed_mutations import damage

    rng = np.random.default_rng(0)
    whole = multiples(20, 30, 127, rng) * (rng.random((20, 30)) < 0.5)
    parts = tensors.write([product(whole, short(20, rng), kind)])
    plan, refused = zlib.decompress(parts.plan), 0
    for seed in range(500):
        chance = random.Random(seed)
        held = [plan, parts.raw, parts.code]
        place = chance.choice([0, 0, 1, 2])
        held[place] = damage(held[place], chance)
        try:
            tensors.read(held[0], memoryview(held[1]), parts.lanes, memoryview(held[2]), Budget(2**22))
        except PackedError:
            refused += 1
    assert refused > 300
