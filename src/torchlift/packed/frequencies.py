"""Frequencies of symbols, as few bits as they deserve.

A count becomes a number of m + 1 significant bits, (2^m + a)·2^e, stored as e·2^m + a + 1 (0: the symbol is
absent). Both sides turn these weights w into whole frequencies that sum to 2^k by the same integer
arithmetic:

    f = 1 + ⌊w·(2^k − K) / Σw⌋ for the K symbols with w > 0,        the rest goes to the largest.

More bits cost more in the table and less in the code; ``fit`` takes the m and k with the least sum.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from torchlift.packed.budget import PackedError
from torchlift.packed.byteflow import ByteSink, ByteSource
from torchlift.packed.rans import Array

SCALES = (8, 10, 12, 14, 16)
TABLE = 8192
"""Slots of a table that are worth a byte: they are laid out for reading."""
MOST_MANTISSA, MOST_EXPONENT = 10, 30


@dataclasses.dataclass(frozen=True)
class FrequencyTable:
    """Weights of an alphabet's symbols as stored, and the scale k of their frequencies."""

    codes: Array
    mantissa: int
    bits: int

    def frequencies(self) -> Array:
        """Whole numbers that sum to 2^bits."""
        return scaled_frequencies(weights(self.codes, self.mantissa), self.bits)

    def write(self, sink: ByteSink) -> None:
        """Append to a sink."""
        sink.number(self.mantissa)
        sink.number(self.bits)
        for code in self.codes.tolist():
            sink.number(code)


def read_frequencies(source: ByteSource, symbols: int) -> FrequencyTable:
    """The table of an alphabet from a source, if it makes sense."""
    mantissa, bits = source.number(MOST_MANTISSA), source.number(max(SCALES))
    most = (MOST_EXPONENT << mantissa) + (1 << mantissa)
    return FrequencyTable(source.numbers(symbols, most), mantissa, bits)


def codes_of(counts: Array, mantissa: int) -> Array:
    """Counts rounded to ``mantissa`` + 1 significant bits, as codes."""
    shift = max(0, int(counts.max()).bit_length() - MOST_EXPONENT)
    scale = np.maximum(counts >> shift, counts > 0).astype(np.float64)
    exponent = np.frexp(scale)[1] - 1
    rounded = np.rint(np.ldexp(scale, mantissa - exponent)).astype(np.int64)
    codes = (exponent.astype(np.int64) << mantissa) + rounded - (1 << mantissa) + 1
    return np.where(counts > 0, codes, 0)


def weights(codes: Array, mantissa: int) -> Array:
    """The weights that codes stand for."""
    rest, one = np.maximum(codes - 1, 0), 1 << mantissa
    return ((one + (rest & one - 1)) << (rest >> mantissa)) * (codes > 0)


def scaled_frequencies(weight: Array, bits: int) -> Array:
    """Frequencies of sum 2^bits, at least one for every weight that is not zero."""
    symbols = int(np.count_nonzero(weight))
    if not symbols:
        raise PackedError("a table of frequencies is empty.")
    if symbols > 1 << bits:
        raise PackedError("a table has more symbols than its scale allows.")
    return shared_out(weight, symbols, np.array([bits]))[0]


def shared_out(weight: Array, symbols: int, scales: Array) -> Array:
    """The frequencies of ``symbols`` weights above zero at each of some scales, a row for each."""
    frequencies = (weight << scales[:, None]) - symbols * weight
    frequencies //= weight.sum()
    frequencies += weight > 0
    each = np.arange(len(scales))
    frequencies[each, frequencies.argmax(1)] += (1 << scales) - frequencies.sum(1)
    return frequencies


def entropy_bits(counts: Array) -> float:
    """n·H in bits for symbols that occur so often."""
    seen = counts[counts > 0].astype(np.float64)
    return float(-(seen * np.log2(seen / seen.sum())).sum()) if seen.size else 0.0


def least_size(counts: Array) -> float:
    """Bytes that no table makes less of: the entropy, and the coarsest table."""
    return entropy_bits(counts) / 8 * (1 - 1e-9) + int(np.count_nonzero(counts)) * 3 / 8


def cheapest_table(counts: Array) -> tuple[FrequencyTable, float]:
    """The cheapest table for symbols that occur so often, and bytes of the code and of the table under it:
    Σ n·(k − log2 f) / 8 and a few bits a symbol.

    No code is shorter than the entropy: where not even that one would win, more bits are not tried.
    """
    present, entropy = counts[counts > 0], entropy_bits(counts) / 8 * (1 - 1e-9)
    scales = np.array([bits for bits in SCALES if 1 << bits >= 4 * present.size])
    best, least = (0, SCALES[-1]), math.inf
    for mantissa in range(MOST_MANTISSA + 1):
        table = present.size * (mantissa + 3) / 8
        scales = scales[priced_bytes(entropy + table, scales) < least]
        if not scales.size:
            break
        weight = weights(codes_of(present, mantissa), mantissa)
        frequencies = shared_out(weight, present.size, scales)
        sizes = priced_bytes((scales * present.sum() - np.log2(frequencies) @ present) / 8 + table, scales)
        position = int(sizes.argmin())
        if sizes[position] < least:
            best, least = (mantissa, int(scales[position])), float(sizes[position])
    return FrequencyTable(codes_of(counts, best[0]), *best), least


def priced_bytes(size: Any, scales: Array) -> Array:
    """Bytes with what scales cost: a small one reads faster."""
    return size + (1e-4 * scales * size + (1 << scales) / TABLE)
