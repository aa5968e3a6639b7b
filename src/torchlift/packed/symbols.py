"""Names of values, 0 ≤ s < K, as segments of the coder.

K ≤ 16:   several names make one symbol (at most 8 of 2, 5 of 3, 4 of 4, 3 of 6, 2 of 16), which is several
          times faster and sees what neighbors have in common; fewer where the table would cost more than
          that is worth (the coder's first version knew only as many as fit, or one by one).
K ≤ 2^12: a name is a symbol.
K ≤ 2^16: first which block of 4096 each name lies in; then, block by block, which name of the block.
"""

import functools
from collections.abc import Iterator

import numpy as np

from torchlift.packed.budget import PackedError
from torchlift.packed.byteflow import Sink, Source
from torchlift.packed.frequencies import Table, fit, read_table
from torchlift.packed.rans import PIECE, Array, Decoder, Segment

BYTE = 256
BLOCK = 4096
WORTH = 1.01
"""What fewer symbols may cost: they read faster."""


def together(letters: int) -> int:
    """How many names of an alphabet fit into one of 256 symbols."""
    count, power = 1, letters
    while letters > 1 and power * letters <= BYTE:
        count, power = count + 1, power * letters
    return count


def halved(most: int) -> Iterator[int]:
    """Sizes of groups to try, the largest first."""
    while most > 1:
        yield most
        most //= 2


def joined(names: Array, letters: int, group: int) -> Array:
    """Groups of names as one symbol each, the first name first; the end is filled with zeros."""
    full = np.zeros(-(-names.size // group) * group, np.uint8)
    full[: names.size] = names
    return full.reshape(-1, group) @ (letters ** np.arange(group - 1, -1, -1)).astype(np.uint8)


@functools.cache
def spread(letters: int, group: int) -> Array:
    """The names in every symbol: a row for each."""
    powers = letters ** np.arange(group - 1, -1, -1)
    return (np.arange(letters**group)[:, None] // powers % letters).astype(np.uint8)


def write(names: Array, letters: int, sink: Sink, segments: list[Segment]) -> float:
    """Append names to the segments and what decoding needs to the sink; about how many bytes they take."""
    if letters <= 1 or not names.size:
        return 0.0
    if letters > BLOCK:
        return write_blocks(names, letters, sink, segments)
    most = together(letters)
    table, size = fit(np.bincount(names, minlength=letters))
    for group in halved(most):
        symbols = joined(names, letters, group)
        found = fit(np.bincount(symbols, minlength=letters**group))
        if found[1] <= WORTH * size:
            sink.number(group)
            return add(symbols, *found, sink, segments)
    if most > 1:
        sink.number(1)
    return add(names, table, size, sink, segments)


def add(symbols: Array, table: Table, size: float, sink: Sink, segments: list[Segment]) -> float:
    """One segment and its table."""
    table.write(sink)
    segments.append(Segment(symbols.astype(np.uint16), table.frequencies(), table.bits))
    return size


def write_blocks(names: Array, letters: int, sink: Sink, segments: list[Segment]) -> float:
    """Names of a large alphabet in two parts."""
    block, rest = np.divmod(names, BLOCK)
    blocks = -(-letters // BLOCK)
    total = add(block, *fit(np.bincount(block, minlength=blocks)), sink, segments)
    order = np.argsort(block, kind="stable")
    ends = np.cumsum(np.bincount(block, minlength=blocks))
    for number, inside in enumerate(np.split(rest[order], ends[:-1])):
        size = min(BLOCK, letters - number * BLOCK)
        if size > 1:
            counts = np.bincount(inside, minlength=size)
            total += add(inside, *fit(counts), sink, segments)
    return total


def read(count: int, values: Array, source: Source, decoder: Decoder) -> Array:
    """``count`` entries, each one of ``values``."""
    letters = values.size
    if not letters and count:
        raise PackedError("entries have an empty palette.")
    if letters <= 1 or not count:
        return np.full(count, values[0] if letters else 0, values.dtype)
    if letters > BLOCK:
        return read_blocks(count, values, source, decoder)
    group = 1
    if together(letters) > 1:
        group = source.number(together(letters))
        if not group:
            raise PackedError("names are in groups of none.")
    table = read_table(source, letters**group)
    if group == 1:
        return decoder.symbols(count, table.frequencies(), table.bits, values)
    found = decoder.symbols(-(-count // group), table.frequencies(), table.bits)
    return looked_up(values[spread(letters, group)], found).reshape(-1)[:count]


def looked_up(rows: Array, symbols: Array) -> Array:
    """The row of each symbol; by pieces, since numpy makes eight bytes of every index."""
    out = np.empty((symbols.size, rows.shape[1]), rows.dtype)
    for begin in range(0, symbols.size, PIECE):
        piece = symbols[begin : begin + PIECE].astype(np.intp)
        rows.take(piece, 0, out=out[begin : begin + PIECE], mode="clip")
    return out


def read_blocks(count: int, values: Array, source: Source, decoder: Decoder) -> Array:
    """The inverse of :func:`write_blocks`, with the values that the names stand for."""
    blocks = -(-values.size // BLOCK)
    table = read_table(source, blocks)
    block = decoder.symbols(count, table.frequencies(), table.bits).astype(np.uint8)
    out = np.empty(count, values.dtype)
    for number in range(blocks):
        own, here = values[number * BLOCK : (number + 1) * BLOCK], np.flatnonzero(block == number)
        if own.size > 1:
            table = read_table(source, own.size)
            out[here] = decoder.symbols(here.size, table.frequencies(), table.bits, own)
        else:
            out[here] = own[0]
    return out
