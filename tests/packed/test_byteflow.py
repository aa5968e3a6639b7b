"""Whole numbers as bytes: many at once are as many one by one."""

import numpy as np
import pytest

from torchlift.packed.budget import PackedError
from torchlift.packed.byteflow import ByteSink, ByteSource

SIZES = np.array([0, 1, 127, 128, 300, 2**14, 2**21 - 1, 2**40, 2**62] * 8, dtype=np.int64)


def written(values, signed=False):
    sink = ByteSink()
    for value in values.tolist():
        (sink.signed if signed else sink.number)(value)
    return bytes(sink.data)


@pytest.mark.parametrize("count", [0, 5, 72])
def test_many_numbers_are_read_as_one_by_one(count):
    source = ByteSource(b"\x05" + written(SIZES[:count]) + b"\x07")
    assert source.number() == 5
    assert source.numbers(count).tolist() == SIZES[:count].tolist()
    assert source.number() == 7
    source.close()


def test_numbers_of_either_sign():
    values = SIZES[:64] // 4 * np.array([1, -1] * 32)
    assert ByteSource(written(values, signed=True)).signs(64).tolist() == values.tolist()


@pytest.mark.parametrize(
    ("data", "most", "what"),
    [
        (b"\x01" * 63 + b"\x81", 9, "past the end"),
        (b"\x01" * 50, 9, "past the end"),
        (b"\x01" * 63 + b"\xff" * 9 + b"\x01", 2**62, "past the end"),
        (b"\x01" * 63 + b"\x0a", 9, "at most 9"),
    ],
)
def test_numbers_that_cannot_be_raise(data, most, what):
    with pytest.raises(PackedError, match=what):
        ByteSource(data).numbers(64, most)
