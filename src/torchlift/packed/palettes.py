"""The distinct values of a tensor, in few bytes.

On a grid they are multiples of one step, v = round(k·step): the step and the whole numbers k are stored, each
as its distance to the one before. Elsewhere the values' bits are, in rising order. Which of the two is tried
by decoding. Of int16 the distances alone are stored (since the third version of the coder).
"""

import numpy as np
import torch

from torchlift.packed.budget import PackedError
from torchlift.packed.byteflow import Sink, Source
from torchlift.packed.elements import BITS, bits_of
from torchlift.packed.rans import Array

BY_BITS, BY_STEP, BY_DISTANCE = 0, 1, 2
MOST = 65_536
FAR = 2**20
DIGITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
LEAST_EXPONENT = {torch.float64: -1021, torch.float32: -125, torch.float16: -13, torch.bfloat16: -125}
"""Of normal numbers f·2^e with ½ ≤ f < 1: smaller ones have the units of these."""
FLOATS = tuple(DIGITS)


def write(bits: Array, kind: torch.dtype, sink: Sink) -> Array:
    """Append a palette; its values' bits in the order in which they are stored."""
    if kind == torch.int16:
        return write_whole(bits, sink)
    grid = steps(bits, kind)
    if grid is None:
        sink.number(BY_BITS)
        sink.bytes(bits.view(np.uint8).reshape(bits.size, -1).T.tobytes())
        return bits
    step, multiples = grid
    sink.number(BY_STEP)
    sink.bytes(np.array(step, "<f8").tobytes())
    for distance in np.diff(multiples, prepend=0).tolist():
        sink.signed(distance)
    return on_grid(step, multiples, kind)


def write_whole(bits: Array, sink: Sink) -> Array:
    """Whole numbers: each as its distance to the one before."""
    values = np.sort(bits.view("<i2"))
    sink.number(BY_DISTANCE)
    for distance in np.diff(values.astype(np.int64), prepend=0).tolist():
        sink.signed(distance)
    return values.view("<u2")


def read(source: Source, count: int, kind: torch.dtype) -> Array:
    """The bits of a palette's ``count`` values."""
    unit = BITS[kind.itemsize]
    how = source.number(BY_DISTANCE)
    if how == BY_BITS:
        planes = np.frombuffer(source.bytes(count * unit.itemsize), np.uint8).reshape(unit.itemsize, count)
        return planes.T.copy().view(unit).reshape(count)
    if how == BY_DISTANCE:
        return read_whole(source, count, kind)
    if kind not in FLOATS:
        raise PackedError("a palette of whole numbers has a step.")
    step = float(np.frombuffer(source.bytes(8), "<f8")[0])
    multiples = np.cumsum(source.signs(count).clip(-FAR, FAR))
    return on_grid(step, multiples, kind)


def read_whole(source: Source, count: int, kind: torch.dtype) -> Array:
    """The inverse of :func:`write_whole`."""
    values = np.cumsum(source.signs(count).clip(-FAR, FAR))
    found = values.astype("<i2")
    if kind != torch.int16 or np.any(found != values):
        raise PackedError("a palette of int16 has other numbers.")
    return found.view("<u2")


def on_grid(step: float, multiples: Array, kind: torch.dtype) -> Array:
    """The bits of round(k·step) in a number type."""
    if kind == torch.float32:  # the same, with fewer calls
        with np.errstate(over="ignore", invalid="ignore"):
            return (multiples * step).astype("<f4").view("<u4")
    return bits_of((torch.from_numpy(multiples).double() * step).to(kind))


def steps(bits: Array, kind: torch.dtype) -> tuple[float, Array] | None:
    """The step and multiples of values that lie on a grid exactly; None where they do not."""
    if kind not in FLOATS or bits.size < 3:
        return None
    values = torch.from_numpy(bits.view(np.uint8).copy()).view(kind).double().numpy()
    sizes = np.unique(np.abs(values[values != 0]))
    if not np.isfinite(values).all() or sizes.size < 2:
        return None
    step = common_divisor(sizes)
    if step is None:
        return None
    multiples = np.rint(sizes / step)
    half = half_unit(sizes, kind)
    low, high = ((sizes - half) / multiples).max(), ((sizes + half) / multiples).min()
    step = float((low + high) / 2)
    if not 0 < step * FAR < np.inf or sizes[-1] > FAR * step:
        return None
    multiples = np.sort(np.rint(values / step).astype(np.int64))
    again = on_grid(step, multiples, kind)
    return (step, multiples) if np.array_equal(np.sort(again), np.sort(bits)) else None


def half_unit(sizes: Array, kind: torch.dtype) -> Array:
    """Half the distance to the next number of the type."""
    return np.ldexp(0.5, np.maximum(np.frexp(sizes)[1], LEAST_EXPONENT[kind]) - DIGITS[kind])


def common_divisor(sizes: Array) -> float | None:
    """The largest step of which all sizes are nearly whole multiples: Euclid's algorithm with a tolerance."""
    step, tolerance = float(sizes[0]), float(sizes[0]) * 0.05
    for _ in range(24):
        if not 0 < step * FAR < np.inf or sizes[-1] > FAR * step:
            return None
        rest = np.abs(sizes - step * np.rint(sizes / step))
        if rest.max() <= tolerance:
            return step
        step = float(rest[rest > tolerance].min())
        tolerance = min(tolerance, step * 0.05)
    return None
