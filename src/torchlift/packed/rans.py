"""Interleaved range asymmetric numeral systems (Duda, arXiv:1311.2540): symbols at their entropy.

A state x of 2^16 ≤ x < 2^32 takes in a symbol of frequency f (of 2^k) that starts at c:

    x ← ⌊x / f⌋·2^k + c + x mod f        and gives it back:        s = symbol at (x mod 2^k),
                                                                  x ← f·⌊x / 2^k⌋ + x mod 2^k − c.

Before it would leave its range it hands 16 bits to the words; going back it fetches them. Symbol i belongs to
lane i mod N: numpy moves all lanes at once. The states live on from segment to segment, so that only one set
of them is stored for a tensor. All arithmetic is on whole numbers: a file decodes the same
everywhere.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from torchlift.packed.budget import Budget, PackedError
from torchlift.packed.byteflow import Cursor

LOW = 1 << 16
MOST_LANES = 32_768
WASTE = 400
"""Bytes of code per lane: a lane costs about two, so that all of them stay below half a percent."""
FREE = 32
"""Steps beside one for every two bytes of code: an honest writer takes as many lanes as that needs."""

PIECE = 1 << 16
"""Symbols whose meaning is looked up at once."""
LEAST = np.uint32(LOW)
SHIFTS, SLOTS = np.arange(17, dtype=np.uint32), (1 << np.arange(17)).astype(np.uint32) - np.uint32(1)
PLACES = np.arange(1 << 16, dtype=np.uint32)

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class Segment:
    """Symbols 0 ≤ s < 65,536 under one table of frequencies, which sum to 2^bits."""

    symbols: Array
    frequencies: Array
    bits: int

    @property
    def says(self) -> bool:
        """Whether there is anything to code: one symbol alone needs no words."""
        return bool(self.symbols.size) and int(self.frequencies.max()) < 1 << self.bits


def lanes_for(size: float, symbols: int) -> int:
    """Lanes that cost little beside ``size`` bytes of code, and move ``symbols`` in few steps."""
    lanes = max(1, int(size / WASTE))
    while symbols > lanes * (FREE + (size + 4 * lanes) / 2):
        lanes += max(1, lanes // 4)
    return min(MOST_LANES, lanes)


def starts(frequencies: Array) -> Array:
    """Where each symbol's range begins: sums of the frequencies before it."""
    return np.cumsum(frequencies) - frequencies


def encode(segments: Sequence[Segment], lanes: int) -> tuple[Array, Array]:
    """States (one 32-bit number a lane) and words (16 bits each) that give the segments back in order."""
    state = np.full(lanes, LOW, np.uint32)
    words: list[Array] = []
    for segment in reversed(segments):
        if not segment.says:
            continue
        frequency = segment.frequencies.astype(np.uint32)
        start = starts(segment.frequencies).astype(np.uint32)
        ceiling = segment.frequencies.astype(np.uint64) << np.uint64(32 - segment.bits)
        symbols, bits = segment.symbols, np.uint32(segment.bits)
        for begin in range((symbols.size - 1) // lanes * lanes, -1, -lanes):
            chosen = symbols[begin : begin + lanes]
            x, f = state[: chosen.size], frequency[chosen]
            full = x >= ceiling[chosen]
            words.append((x[full] & np.uint32(0xFFFF)).astype(np.uint16))
            x = np.where(full, x >> np.uint32(16), x)
            whole = x // f
            state[: chosen.size] = (whole << bits) + (x - whole * f) + start[chosen]
    words.reverse()
    return state, np.concatenate(words) if words else np.empty(0, np.uint16)


def steps(frequencies: Array, bits: int) -> Array:
    """For each slot its symbol's frequency, and how far into the symbol's range it lies."""
    pairs = np.empty((frequencies.size, 2), np.uint32)
    pairs[:, 0], pairs[:, 1] = frequencies, -starts(frequencies)
    found = pairs.repeat(frequencies, 0)
    found[:, 1] += PLACES[: 1 << bits]
    return found


class Decoder:
    """Gives the symbols back, segment by segment; words are fetched as they are needed."""

    def __init__(self, code: Cursor, lanes: int, budget: Budget) -> None:
        if lanes > MOST_LANES or code.left < 4 * lanes or code.left % 2 or (not lanes and code.left):
            raise PackedError("the code of a tensor has an impossible length.")
        self.code, self.budget = code, budget
        self.state = np.frombuffer(code.take(4 * lanes), "<u4").astype(np.uint32)
        self.words, self.at = np.empty(0, "<u2"), 0
        if np.any(self.state < LOW):
            raise PackedError("a state of the coder is out of range.")

    def fill(self, count: int) -> None:
        """Have the next ``count`` words at hand, as far as there are any: no symbol takes two."""
        missing = min(count - (self.words.size - self.at), self.code.left // 2)
        if missing > 0:
            more = np.frombuffer(self.code.take(2 * missing), "<u2")
            self.words, self.at = np.concatenate((self.words[self.at :], more)), 0

    def symbols(self, count: int, frequencies: Array, bits: int, values: Array | None = None) -> Array:
        """The next ``count`` symbols of the alphabet with these frequencies, or the values they stand for."""
        values = np.arange(frequencies.size, dtype=np.uint16) if values is None else values
        (present,) = frequencies.nonzero()
        if present.size == 1:
            return np.full(count, values[present[0]])
        lanes = self.state.size
        if not lanes:
            raise PackedError("symbols have no code.")
        self.budget.step(-(-count // lanes))
        meaning, step = values.repeat(frequencies), steps(frequencies, bits)
        out = np.empty(count, meaning.dtype)
        rows = max(1, min(PIECE, count) // lanes)
        slots, work = np.empty((rows, lanes), np.intp), np.empty((lanes, 2), np.uint32)
        for begin in range(0, count, rows * lanes):
            piece = out[begin : begin + rows * lanes]
            self.fill(piece.size)
            whole, rest = divmod(piece.size, lanes)
            for slot in slots[:whole]:
                self.move(self.state, slot, step, work, bits)
            if rest:
                self.move(self.state[:rest], slots[whole, :rest], step, work[:rest], bits)
            meaning.take(slots.reshape(-1)[: piece.size], out=piece, mode="clip")
        return out

    def move(self, x: Array, slot: Array, step: Array, work: Array, bits: int) -> None:
        """One symbol of every lane: its slot, and the state before it; 16 bits for those out of range."""
        np.bitwise_and(x, SLOTS[bits], out=slot)
        step.take(slot, 0, out=work, mode="clip")
        np.right_shift(x, SHIFTS[bits], out=x)
        np.multiply(x, work[:, 0], out=x)
        np.add(x, work[:, 1], out=x)
        (low,) = (x < LEAST).nonzero()
        end = self.at + low.size
        if end > self.words.size:
            raise PackedError("the code ends before its symbols do.")
        if low.size:
            x[low] = x[low] << SHIFTS[16] | self.words[self.at : end]
            self.at = end

    def close(self) -> None:
        """All words are used and every lane is back where encoding began: else the code was changed."""
        if self.at != self.words.size or self.code.left or np.any(self.state != LOW):
            raise PackedError("the code does not end where it should: it was changed.")
