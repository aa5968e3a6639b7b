"""Names of values, 0 ≤ s < K, as segments of the coder.

K ≤ 16:   several names make one symbol (at most 8 of 2, 5 of 3, 4 of 4, 3 of 6, 2 of 16), which is several
          times faster and sees what neighbors have in common; fewer where the table would cost more than
          that is worth.
K ≤ 2^12: a name is a symbol.
K ≤ 2^16: first which block of 4096 each name lies in; then, block by block, which name of the block.
"""

import functools
from collections.abc import Iterator

import numpy as np

from torchlift.packed.budget import PackedError
from torchlift.packed.byteflow import ByteSink, ByteSource
from torchlift.packed.frequencies import FrequencyTable, cheapest_table, entropy_bits, read_frequencies
from torchlift.packed.rans import PIECE, Array, Decoder, Segment

BYTE = 256
BLOCK = 4096
WORTH = 1.01
"""What fewer symbols may cost: they read faster."""
STRETCH = 1 << 18
"""Entries of a tensor that are decoded at once: memory beside a tensor's own does not grow with it."""


def names_per_symbol(letters: int) -> int:
    """How many names of an alphabet fit into one of 256 symbols."""
    count, power = 1, letters
    while letters > 1 and power * letters <= BYTE:
        count, power = count + 1, power * letters
    return count


def group_sizes(most: int) -> Iterator[int]:
    """Sizes of groups to try, the largest first."""
    while most > 1:
        yield most
        most //= 2


def grouped_symbols(names: Array, letters: int, group: int) -> Array:
    """Groups of names as one symbol each, the first name first; the end is filled with zeros."""
    full = np.zeros(-(-names.size // group) * group, np.uint8)
    full[: names.size] = names
    return full.reshape(-1, group) @ (letters ** np.arange(group - 1, -1, -1)).astype(np.uint8)


@functools.cache
def spread_names(letters: int, group: int) -> Array:
    """The names in every symbol: a row for each."""
    powers = letters ** np.arange(group - 1, -1, -1)
    return (np.arange(letters**group)[:, None] // powers % letters).astype(np.uint8)


Boundaries = list[tuple[int, int]]


def pieces(count: int) -> Iterator[tuple[int, int]]:
    """Stretches of at most :data:`STRETCH` entries: start and end of each."""
    for start in range(0, count, STRETCH):
        yield start, min(count, start + STRETCH)


class Coded:
    """Symbols under one table that was fitted to all of them."""

    def __init__(self, counts: Array) -> None:
        self.table, self.size = cheapest_table(counts)
        self.frequencies, self.ideal = self.table.frequencies(), entropy_bits(counts) / 8

    def segment(self, symbols: Array) -> Segment:
        """Some of the symbols."""
        return Segment(symbols.astype(np.uint16), self.frequencies, self.table.bits)


class Names:
    """Names to write: tables first, then the names in stretches (``cuts``); groups begin again in each."""

    def __init__(self, names: Array, letters: int, cuts: Boundaries | None = None) -> None:
        self.names, self.letters, self.group = names, letters, 1
        self.inner: list[Coded | None] = []
        self.size = self.ideal = 0.0
        self.count = 0
        if letters <= 1 or not names.size:
            return
        if letters > BLOCK:
            self.fit_blocks()
            return
        self.first = Coded(np.bincount(names, minlength=letters))
        self.ideal = self.first.ideal
        for group in group_sizes(names_per_symbol(letters)):
            counts = np.zeros(letters**group, np.int64)
            for start, end in cuts or pieces(names.size):
                counts += np.bincount(
                    grouped_symbols(names[start:end], letters, group), minlength=counts.size
                )
            coded = Coded(counts)
            self.ideal = min(self.ideal, coded.ideal)
            if coded.size <= WORTH * self.first.size:
                self.first, self.group = coded, group
                break
        self.size, self.count = self.first.size, -(-names.size // self.group)

    def fit_blocks(self) -> None:
        """Tables of a large alphabet in two parts."""
        every = np.bincount(self.names, minlength=self.letters)
        blocks = [every[start : start + BLOCK] for start in range(0, self.letters, BLOCK)]
        self.first = Coded(np.array([counts.sum() for counts in blocks]))
        self.inner = [Coded(counts) if counts.size > 1 and counts.any() else None for counts in blocks]
        every = [self.first, *(coded for coded in self.inner if coded is not None)]
        self.size, self.ideal = sum(coded.size for coded in every), sum(coded.ideal for coded in every)
        self.count = 2 * self.names.size

    def describe(self, sink: ByteSink) -> None:
        """What reading needs before the first name."""
        if self.letters <= 1 or not self.names.size:
            return
        if names_per_symbol(self.letters) > 1:
            sink.number(self.group)
        self.first.table.write(sink)
        for number, coded in enumerate(self.inner):
            if self.letters - number * BLOCK > 1:
                sink.number(int(coded is not None))
                if coded is not None:
                    coded.table.write(sink)

    def segments(self, start: int, end: int) -> Iterator[Segment]:
        """A stretch of the names."""
        names = self.names[start:end]
        if self.letters <= 1 or not names.size:
            return
        if not self.inner:
            yield self.first.segment(
                names if self.group == 1 else grouped_symbols(names, self.letters, self.group)
            )
            return
        block, rest = np.divmod(names, BLOCK)
        yield self.first.segment(block)
        for number, coded in enumerate(self.inner):
            if coded is not None:
                yield coded.segment(rest[block == number])


class NamedValues:
    """Values whose names follow: the inverse of :class:`Names`."""

    def __init__(self, values: Array, count: int, source: ByteSource) -> None:
        self.values, self.group = values, 1
        self.inner: list[FrequencyTable | None] = []
        letters = values.size
        if not letters and count:
            raise PackedError("entries have an empty palette.")
        if letters <= 1 or not count:
            return
        if letters <= BLOCK and names_per_symbol(letters) > 1:
            self.group = source.number(names_per_symbol(letters))
            if not self.group:
                raise PackedError("names are in groups of none.")
        self.first = read_frequencies(
            source, letters**self.group if letters <= BLOCK else -(-letters // BLOCK)
        )
        self.frequencies = self.first.frequencies()
        for start in range(0, letters if letters > BLOCK else 0, BLOCK):
            width = min(BLOCK, letters - start)
            self.inner.append(read_frequencies(source, width) if width > 1 and source.number(1) else None)

    def read(self, count: int, decoder: Decoder) -> Array:
        """The next ``count`` values."""
        if self.values.size <= 1 or not count:
            return np.full(count, self.values[0] if self.values.size else 0, self.values.dtype)
        if self.inner:
            return self.read_blocks(count, decoder)
        bits = self.first.bits
        if self.group == 1:
            return decoder.symbols(count, self.frequencies, bits, self.values)
        symbols = decoder.symbols(-(-count // self.group), self.frequencies, bits)
        rows = self.values[spread_names(self.values.size, self.group)]
        return looked_up(rows, symbols).reshape(-1)[:count]

    def read_blocks(self, count: int, decoder: Decoder) -> Array:
        """Names of a large alphabet: which block each lies in, then which of the block."""
        block = decoder.symbols(count, self.frequencies, self.first.bits).astype(np.uint8)
        out = np.empty(count, self.values.dtype)
        for number, table in enumerate(self.inner):
            here = np.flatnonzero(block == number)
            own = self.values[number * BLOCK : (number + 1) * BLOCK]
            if table is not None:
                out[here] = decoder.symbols(here.size, table.frequencies(), table.bits, own)
            elif own.size > 1 and here.size:
                raise PackedError("a block of names has no table.")
            else:
                out[here] = own[0]
        return out


def looked_up(rows: Array, symbols: Array) -> Array:
    """The row of each symbol; by pieces, since numpy makes eight bytes of every index."""
    out = np.empty((symbols.size, rows.shape[1]), rows.dtype)
    for start in range(0, symbols.size, PIECE):
        piece = symbols[start : start + PIECE].astype(np.intp)
        rows.take(piece, 0, out=out[start : start + PIECE], mode="clip")
    return out
