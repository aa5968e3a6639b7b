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
import itertools
import math
from collections.abc import Iterator

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
GROUPS = (256, 128, 64, 32, 16)
"""Entries along a row that may have a step of their own."""
TYPICAL = (1, 2, 3, 7, 15, 31, 63, 127, 255)
"""How many steps the extremes of a row with an offset lie apart."""
UNITS = np.array([0, 1, -1, 2, -2], np.int32)
"""In the last place of a step: what its rounding may have been."""
COLUMN_LEVELS, ENOUGH, SAMPLE, NEAR = 1024, 8, 1024, 100
SMALL, FIRST = 1 << 16, 2048
RowGrid = tuple[Grid, Array]


def smallest(bits: Array, kind: torch.dtype, shape: tuple[int, ...]) -> Form:
    """The smallest form of a tensor without a record; grids are looked for where it has floats."""
    if kind not in DIGITS or bits.size < 2 * FEW:
        return whole_form(bits, kind)
    forms = (levels_form(candidate, bits, kind) for candidate in candidates(bits, kind, shape))
    form = next((form for form in forms if form is not None), None)
    if form is not None and bits.size > SMALL and form.size < bits.nbytes / 2:
        return form  # nothing else comes near, and to try takes longer than to write
    plain = whole_form(bits, kind)
    if form is None:
        return plain
    least = min(form.ideal, plain.ideal)
    candidate = form if form.size < plain.size else plain
    candidate.ideal = least
    return candidate


def levels_form(candidate: RowGrid, bits: Array, kind: torch.dtype) -> Form | None:
    """The form of levels under a grid, with what is missing to the bits; None where that is much."""
    grid, levels = candidate
    levels = levels.reshape(-1).astype("<i2")
    missing = (bits - grid.values(levels, 0, kind)).view(f"<i{bits.itemsize}")
    if missing.max() > NEAR or missing.min() < -NEAR:
        return None
    rest = whole_form(missing.astype("<i2").view("<u2"), torch.int16) if missing.any() else None
    return grid_form(grid, whole_form(levels.view("<u2"), torch.int16), False, kinds(grid, kind), rest)


def kinds(grid: Grid, kind: torch.dtype) -> dict[str, str]:
    """The narrowest number types that hold steps, offsets and columns exactly."""
    own = str(kind).removeprefix("torch.")
    narrowest: dict[str, str] = {}
    for name in ("steps", "offsets", "columns"):
        numbers = getattr(grid, name)
        if numbers is not None:
            exact = torch.from_numpy(numbers)
            fits = torch.equal(exact.to(kind).to(exact.dtype), exact)
            narrowest[name] = own if fits else str(exact.dtype).removeprefix("torch.")
    return narrowest


def candidates(bits: Array, kind: torch.dtype, shape: tuple[int, ...]) -> Iterator[RowGrid]:
    """Grids that give the bits back, the plainest first: one step, one for each row, groups along rows; the
    same with offsets; rows and columns. A few rows tell nearly always that there is none."""
    tail = [1] * (len(shape) - 1)
    blocks: list[list[int]] = [[1, *tail]]
    if len(shape) > 1 and shape[0] > 1:
        blocks.append([shape[0], *tail])
    if len(shape) == 2:
        blocks += [[shape[0], shape[1] // g] for g in GROUPS if shape[1] > g and shape[1] % g == 0]
    for way in (split_levels, split_shifted):
        for steps in blocks:
            candidate = way(bits, kind, math.prod(steps))
            if candidate is not None:
                offsets = None if len(candidate) == 2 else candidate[2].reshape(steps)
                yield Grid(shape, candidate[0].reshape(steps), offsets), candidate[1]
    if len(shape) == 2 and kind == torch.float32:
        candidate = split_columns(bits.view("<f4").reshape(shape))
        if candidate is not None:
            yield candidate


def split_shifted(bits: Array, kind: torch.dtype, rows: int) -> tuple[Array, Array, Array] | None:
    """(steps, k, offsets) with w = round(round(k · step) + offset) and 0 ≤ k ≤ 255: the least entry of a
    row is its offset, and the largest says the step."""
    if kind != torch.float32 or rows < 2 or bits.size < 2 * FEW * rows:  # one row alone is a palette
        return None
    table = bits.view("<f4").reshape(rows, -1)
    if not np.isfinite(table).all() or not shifted_rows(table[:2]):
        return None
    offsets = table.min(1)
    steps, whole = np.ones(rows, np.float32), np.zeros(table.shape, np.int16)
    for start in range(0, rows, max(1, PIECE // table.shape[1])):
        piece = slice(start, start + max(1, PIECE // table.shape[1]))
        if not shifted_piece(table[piece], offsets[piece], steps[piece], whole[piece]):
            return None
    return steps, whole, offsets


@np.errstate(all="ignore")  # steps of zero and infinite ones fit nothing
def shifted_rows(table: Array) -> bool:
    """Whether the first entries of a few rows allow steps and an offset; every step is tried at once."""
    offsets = table.min(1)
    span = table.max(1) - offsets
    few = table[:, :FIRST]
    far = few.astype(np.float64) - offsets.astype(np.float64)[:, None]
    step = ((span / np.array(TYPICAL, np.float32)[:, None]).view("<i4")[:, None] + UNITS[:, None]).view("<f4")
    levels = np.rint(far / step[..., None].astype(np.float64)).astype(np.int16)
    again = np.multiply(levels, step[..., None], dtype=np.float32) + offsets[:, None]
    fine = (again.view("<u4") == few.view("<u4")).all(-1).any((0, 1))
    return bool((fine | (span <= 0)).all())


@np.errstate(all="ignore")
def shifted_piece(table: Array, offsets: Array, steps: Array, whole: Array) -> bool:
    """Fill in steps and k of some rows; whether all have them. The distance of a row's extremes is k steps
    for some typical k: the largest step that fits is taken."""
    span = table.max(1) - offsets
    todo = span > 0
    far = table.astype(np.float64) - offsets.astype(np.float64)[:, None]
    for count, units in itertools.product(TYPICAL, UNITS):
        rows = np.flatnonzero(todo)
        if not rows.size:
            break
        step = ((span[rows] / np.float32(count)).view("<i4") + units).view("<f4")
        levels = np.rint(far[rows] / step[:, None].astype(np.float64)).astype(np.int16)
        again = np.multiply(levels, step[:, None], dtype=np.float32) + offsets[rows][:, None]
        fine = (again.view("<u4") == table[rows].view("<u4")).all(1)
        steps[rows[fine]], whole[rows[fine]] = step[fine], levels[fine]
        todo[rows[fine]] = False
    return not todo.any()


def split_columns(table: Array) -> RowGrid | None:
    """Rows and columns with scales of their own, w ≈ k · step_r · column_c: where the commonest ratio of two
    columns is that of their scales, dividing by it leaves rows on grids. Roundings are left to the rest."""
    rows, columns = table.shape
    if rows < ENOUGH or columns < ENOUGH or not np.isfinite(table).all():
        return None
    sample = np.abs(table[:SAMPLE].astype(np.float64))
    first = int(np.argmax((sample > 0).sum(0)))
    scale = np.array([commonest(sample[:, c], sample[:, first]) for c in range(columns)])
    if not (scale > 0).all():
        return None
    levels, steps = np.zeros(table.shape, np.int16), np.zeros(rows)
    for row in range(rows):
        rough = rough_levels(table[row] / scale)
        if rough is None:
            return None
        steps[row], levels[row] = rough
    for _ in range(3):  # alternating least squares: roundings average out
        model = levels * steps[:, None]
        scale = (model * table).sum(0) / np.maximum((model * model).sum(0), 1e-300)
        model = levels * scale
        steps = (model * table).sum(1) / np.maximum((model * model).sum(1), 1e-300)
    if not levels.any() or not (scale > 0).all():
        return None
    grid = Grid(table.shape, steps[:, None], None, scale)
    levels[np.signbit(table) & (table == 0)] = negative_zero(levels)
    values = grid.values(levels.reshape(-1), 0, torch.float32)
    missing = table.reshape(-1).view("<i4").astype(np.int64) - values.view("<i4")
    if np.abs(missing).max() > NEAR or entropy(missing) > missing.size / 4:
        return None
    return grid, levels


def commonest(one: Array, other: Array) -> float:
    """The commonest ratio of two columns; 0 where none is common."""
    both = (one > 0) & (other > 0)
    ratios = np.sort(one[both] / other[both])
    if ratios.size < ENOUGH // 2:
        return 0.0
    near = np.searchsorted(ratios, ratios * (1 + 1.2e-6), "right") - np.arange(ratios.size)
    best = int(np.argmax(near))
    return float(np.median(ratios[best : best + int(near[best])])) if near[best] > 2 else 0.0


def rough_levels(row: Array) -> tuple[float, Array] | None:
    """A step and whole numbers of a row whose entries are nearly their products."""
    sizes = np.unique(np.abs(row[row != 0]))
    if not sizes.size:
        return 0.0, np.zeros(row.size, np.int16)
    sizes = sizes[np.concatenate(([True], np.diff(sizes) > 1e-5 * sizes[1:]))]
    step = divisors(sizes[None], 1e-6 * sizes[None], COLUMN_LEVELS)
    if step is None:
        return None
    levels = np.rint(row / step[0])
    if np.abs(row / step[0] - levels).max() > 0.05:
        return None
    return float(step[0]), levels.astype(np.int16)


def split_levels(bits: Array, kind: torch.dtype, rows: int, most: int = MOST) -> tuple[Array, Array] | None:
    """(steps, k as int16, a row each) with |k| ≤ ``most``; None unless that gives the bits back exactly."""
    if kind not in DIGITS or rows < 1 or bits.size < FEW * rows:
        return None
    table = bits.reshape(rows, -1)
    if split_piece(table[:2, :FIRST], kind, most) is None:
        return None
    steps = np.empty(rows, np.float64 if kind == torch.float64 else np.float32)
    whole = np.empty(table.shape, np.int16)
    start, count = 0, 2  # two rows tell nearly always
    while start < rows:
        piece = slice(start, start + count)
        steps_and_levels = split_piece(table[piece], kind, most)
        if steps_and_levels is None:
            return None
        steps[piece], whole[piece] = steps_and_levels
        start, count = start + count, max(1, PIECE // table.shape[1])
    return steps, whole


def split_piece(table: Array, kind: torch.dtype, most: int) -> tuple[Array, Array] | None:
    """The same for some rows."""
    sign = table.dtype.type(1 << 8 * kind.itemsize - 1)
    sizes = table & ~sign
    if sizes.max() >= infinity(kind):
        return None
    with np.errstate(all="ignore"):
        exact = row_steps(distinct_sizes(sizes), kind, most)
        if exact is None:
            return None
        steps = exact.astype(np.float64 if kind == torch.float64 else np.float32)
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
    distinct = np.repeat(ordered[:, -1:], max(1, int(counts.max())), 1)
    distinct[row, np.arange(row.size) - np.repeat(np.cumsum(counts) - counts, counts)] = ordered[row, column]
    return distinct


def row_steps(sizes: Array, kind: torch.dtype, most: int) -> Array | None:
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
        position = rest.argmin(1)
        least = rest[each, position]
        more = least < np.inf
        if not more.any():
            return step
        step[more], error[more] = least[more], doubt[each, position][more]
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
    exponent, numbers = np.frexp(high)[1], ((low + high) / 2).astype(np.float64)
    todo = np.ones(numbers.size, bool)
    for digits in range(1, max(DIGITS[kind], 24) + 1):
        unit = np.ldexp(np.ones_like(high), exponent - digits)
        candidate = np.ceil(low / unit) * unit
        fits = todo & (candidate <= high)
        numbers[fits] = candidate[fits]
        todo &= ~fits
        if not todo.any():
            break
    return numbers
