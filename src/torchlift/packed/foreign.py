"""Grids in bare floats, for models that others quantized and that have no storage record.

Weights are looked at as rows (all of them one row, a row per output, groups along rows): where the entries of
each row are whole multiples of one number, round(k · step), the steps and k are found row by row, all rows of
a block at once. Euclid's algorithm on the row's sizes gives k; each size then bounds the step by its own
rounding,

    (v − half a unit) / k ≤ step ≤ (v + half a unit) / k,

and of the numbers between all bounds that with the fewest significant bits is the step: its low bytes are
zero and cost nothing.
"""

import functools

import numpy as np
import torch

from torchlift.packed.elements import bits_of
from torchlift.packed.forms import Form, entropy, grid_form, whole_form
from torchlift.packed.grids import Grid, negative_zero
from torchlift.packed.rans import Array

MOST = 32_767
DIGITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
LEAST_EXPONENT = {torch.float64: -1021, torch.float32: -125, torch.float16: -13, torch.bfloat16: -125}
"""Of normal numbers f·2^e with ½ ≤ f < 1: smaller ones have the units of these."""
FEW = 4
"""Entries that a row needs: fewer are multiples of one number by chance."""
PIECE = 1 << 18
"""Entries that are looked at together, about."""


def smallest(bits: Array, kind: torch.dtype, shape: tuple[int, ...]) -> Form:
    """The smallest form of a tensor without a record; grids are looked for where it has floats."""
    found = whole_form(bits, kind)
    if kind not in DIGITS or bits.size < 2 * FEW:
        return found
    for grid, levels in candidates(bits, kind, shape):
        if entropy(levels) + grid.steps.nbytes / 2 < found.size:
            levels = levels.reshape(-1).astype("<i2")
            form = grid_form(grid, whole_form(levels.view("<u2"), torch.int16), False, kinds(grid, kind))
            form.ideal = min(form.ideal, found.ideal)
            found.ideal = form.ideal
            if form.size < found.size:
                found = form
    return found


def kinds(grid: Grid, kind: torch.dtype) -> dict[str, str]:
    """The narrowest number types that hold steps, offsets and columns exactly."""
    own = str(kind).removeprefix("torch.")
    wide = own if kind in (torch.float32, torch.float64) else "float32"
    found: dict[str, str] = {}
    for name in ("steps", "offsets", "columns"):
        numbers = getattr(grid, name)
        if numbers is not None:
            exact = torch.from_numpy(numbers)
            found[name] = own if torch.equal(exact.to(kind).to(exact.dtype), exact) else wide
    return found


def candidates(bits: Array, kind: torch.dtype, shape: tuple[int, ...]):
    """Grids that give the bits back exactly: one step, then one for each row."""
    one = split(bits, kind, 1)
    if one is not None:
        yield Grid(shape, one[0].reshape([1] * len(shape))), one[1]
    elif len(shape) > 1:
        rows = split(bits, kind, shape[0])
        if rows is not None:
            yield Grid(shape, rows[0].reshape([-1, *[1] * (len(shape) - 1)])), rows[1]


def split(bits: Array, kind: torch.dtype, rows: int, most: int = MOST) -> tuple[Array, Array] | None:
    """(steps, k as int16, a row each) with |k| ≤ ``most``; None unless that gives the bits back exactly."""
    if kind not in DIGITS or rows < 1 or bits.size < FEW * rows:
        return None
    table = bits.reshape(rows, -1)
    steps = np.empty(rows, np.float64 if kind == torch.float64 else np.float32)
    whole = np.empty(table.shape, np.int16)
    begin, count = 0, 2  # two rows tell nearly always
    while begin < rows:
        piece = slice(begin, begin + count)
        found = split_piece(table[piece], kind, most)
        if found is None:
            return None
        steps[piece], whole[piece] = found
        begin, count = begin + count, max(1, PIECE // table.shape[1])
    return steps, whole


def split_piece(table: Array, kind: torch.dtype, most: int) -> tuple[Array, Array] | None:
    """The same for some rows."""
    sign = table.dtype.type(1 << 8 * kind.itemsize - 1)
    sizes = table & ~sign
    if sizes.max() >= infinity(kind):
        return None
    with np.errstate(all="ignore"):
        found = steps_of(distinct_sizes(sizes), kind, most)
        if found is None:
            return None
        steps = found.astype(np.float64 if kind == torch.float64 else np.float32)
        whole = np.rint(numbers(table, kind) / np.where(steps == 0, 1, steps)[:, None])
        if not np.abs(whole).max() <= most:
            return None
        whole = whole.astype(np.int16)
        whole[table == sign] = negative_zero(whole)
        again = Grid(table.shape, steps[:, None]).values(whole.reshape(-1), 0, kind)
    return (steps, whole) if np.array_equal(again, table.reshape(-1)) else None


@functools.cache
def infinity(kind: torch.dtype) -> int:
    """The bits of ∞."""
    return int(bits_of(torch.tensor([torch.inf], dtype=kind))[0])


def numbers(bits: Array, kind: torch.dtype) -> Array:
    """What bits stand for: float32 as it is, other types as float64."""
    if kind == torch.bfloat16:
        return (bits.astype("<u4") << 16).view("<f4").astype(np.float64)
    values = bits.view(f"<f{kind.itemsize}")
    return values if kind == torch.float32 else values.astype(np.float64)


def distinct_sizes(sizes: Array) -> Array:
    """The distinct sizes of each row but zero, rising, the last repeated to the length of the longest; rows
    of zeros are all zeros."""
    ordered = np.sort(sizes, 1)
    first = ordered != 0
    first[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    counts = first.sum(1)
    row, column = np.nonzero(first)
    found = np.repeat(ordered[:, -1:], max(1, int(counts.max())), 1)
    found[row, np.arange(row.size) - np.repeat(np.cumsum(counts) - counts, counts)] = ordered[row, column]
    return found


def steps_of(sizes: Array, kind: torch.dtype, most: int) -> Array | None:
    """A step for each row of distinct sizes, 0 for rows of zeros; None where a row has none."""
    steps, used = np.zeros(len(sizes)), sizes[:, -1] > 0
    if not used.any():
        return steps
    sizes = sizes[used]
    wide = np.longdouble if kind == torch.float64 else np.float64
    values = numbers(sizes, kind).astype(wide)
    below, above = margins(values, sizes & 1 > 0, kind)
    step = divisors(values, above, most)
    if step is None:
        return None
    low, high = ranges(values, below, above, step)
    if not (low <= high).all():
        return None
    steps[used] = shortest(low, high, kind)
    return steps


def margins(values: Array, odd: Array, kind: torch.dtype) -> tuple[Array, Array]:
    """How far below and above a number may lie that rounds to each value: half a unit, half of that below a
    power of two, a trace less where ties go to the other side."""
    digits, least = DIGITS[kind], LEAST_EXPONENT[kind]
    fraction, exponent = np.frexp(values)
    exponent = np.maximum(exponent, least)
    trace = 2.0 ** (-9 if kind == torch.float64 else -17)  # k·step is never as near to a tie, but on it
    half = np.ldexp(np.where(odd, 1 - trace, 1.0).astype(values.dtype), exponent - digits - 1)
    return np.where((fraction == 0.5) & (exponent > least), half / 2, half), half


def divisors(values: Array, half: Array, most: int) -> Array | None:
    """For each row the largest step of which all values are whole multiples but for their errors: Euclid's
    algorithm, with the error of each remainder."""
    step, error = values[:, 0].copy(), half[:, 0].copy()
    each = np.arange(len(values))
    for _ in range(24):
        if not (values[:, -1] < (most + 0.5) * step).all():
            return None
        whole = np.rint(values / step[:, None])
        rest, doubt = np.abs(values - whole * step[:, None]), half + whole * error[:, None]
        rest[rest <= 1.01 * doubt] = np.inf
        place = rest.argmin(1)
        least = rest[each, place]
        more = least < np.inf
        if not more.any():
            return step
        step[more], error[more] = least[more], doubt[each, place][more]
    return None


def ranges(values: Array, below: Array, above: Array, step: Array) -> tuple[Array, Array]:
    """The least and the largest step of each row; where k is in doubt, the values with a small k narrow the
    step first."""
    step = values[:, 0] / np.rint(values[:, 0] / step)
    doubt = above[:, 0] / values[:, 0]
    low, high = step, step
    for _ in range(4):
        whole = np.maximum(np.rint(values / step[:, None]), 1)
        sure = whole * doubt[:, None] < 0.4
        sure[:, 0] = True
        low = np.where(sure, (values - below) / whole, 0).max(1)
        high = np.where(sure, (values + above) / whole, np.inf).min(1)
        if sure.all():
            break
        step = (low + high) / 2
        doubt = np.maximum(high - low, 0) / (2 * step)
    return low, high


def shortest(low: Array, high: Array, kind: torch.dtype) -> Array:
    """The number of fewest significant bits in each range: multiples of 2^(e − b) for b = 1, 2, …; the middle
    where none has as few as a step has."""
    exponent, found = np.frexp(high)[1], ((low + high) / 2).astype(np.float64)
    todo = np.ones(found.size, bool)
    for digits in range(1, max(DIGITS[kind], 24) + 1):
        unit = np.ldexp(np.ones_like(high), exponent - digits)
        candidate = np.ceil(low / unit) * unit
        fits = todo & (candidate <= high)
        found[fits] = candidate[fits]
        todo &= ~fits
        if not todo.any():
            break
    return found
