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
CELLS = 1 << 17
"""Symbols that are laid out for the encoder at once."""
LEAST = np.uint32(LOW)
SHIFTS, SLOTS = np.arange(17, dtype=np.uint32), (1 << np.arange(17)).astype(np.uint32) - np.uint32(1)
WHOLE_NUMBERS = np.arange(1 << 16, dtype=np.uint32)

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


@dataclasses.dataclass(frozen=True)
class Stream:
    """Segments that are coded one after the other on the same lanes; ``first`` is the number of the first
    symbol of each in the tables of all streams."""

    segments: Sequence[Segment]
    lanes: int
    first: Sequence[int] = ()

    @property
    def steps(self) -> int:
        """How often the lanes move."""
        return sum(-(-segment.symbols.size // self.lanes) for segment in self.segments)

    def rows(self, start: int, end: int) -> Array:
        """What each lane codes in these steps: numbers in the tables of all streams, 0 for nothing."""
        rows, at = np.zeros((end - start, self.lanes), np.uint32), 0
        for segment, first in zip(self.segments, self.first, strict=True):
            count = -(-segment.symbols.size // self.lanes)
            low, high = max(start, at), min(end, at + count)
            if low < high:
                symbols = segment.symbols[(low - at) * self.lanes : (high - at) * self.lanes]
                rows[low - start : high - start].reshape(-1)[: symbols.size] = symbols + np.uint32(first)
            at += count
        return rows


def encode_lanes(streams: Sequence[tuple[Sequence[Segment], int]]) -> list[tuple[Array, Array]]:
    """Of segments on so many lanes: states (one 32-bit number a lane) and words (16 bits each) that give them
    back in order. The lanes of all streams move at once, the longest first, each from its end."""
    tables, coded = [np.array([[1], [0], [2**32 - 1], [0]], np.uint32)], list[Stream]()
    number = 1
    for segments, lanes in streams:
        said = [segment for segment in segments if segment.says]
        sizes = [segment.frequencies.size for segment in said]
        coded.append(Stream(said, lanes, [number + sum(sizes[:k]) for k in range(len(sizes))]))
        number += sum(sizes)
        tables += [table_of(segment) for segment in said]
    table = np.concatenate(tables, 1)
    order = sorted(range(len(coded)), key=lambda n: -coded[n].steps)
    ends = np.cumsum([coded[n].lanes for n in order])
    steps = np.array([coded[n].steps for n in order])
    state = np.full(int(ends[-1]) if order else 0, LOW, np.uint32)
    words, owners = list[Array](), list[Array]()
    done = 0
    while done < (steps[0] if order else 0):
        active = int((steps > done).sum())
        lanes = int(ends[active - 1])
        count = min(max(1, CELLS // lanes), int(steps[active - 1]) - done)
        rows = [coded[n].rows(coded[n].steps - done - count, coded[n].steps - done) for n in order[:active]]
        cells = rows[0] if active == 1 else np.concatenate(rows, 1)
        for frequency, start, most, bits in reversed(list(zip(*table[:, cells], strict=True))):
            x = state[:lanes]
            (full,) = (x > most).nonzero()
            words.append(x[full].astype(np.uint16))
            owners.append(full)
            x[full] >>= SHIFTS[16]
            whole = x // frequency
            x += (whole << bits) - whole * frequency + start
        done += count
    return by_stream(state, ends, order, words, owners)


def table_of(segment: Segment) -> Array:
    """For each symbol of a segment: its frequency, where its range starts, the largest state that takes it in
    without handing out a word, and the bits of the scale."""
    frequency = segment.frequencies.astype(np.uint64)
    ceiling = (frequency << np.uint64(32 - segment.bits)) - np.uint64(1)
    rows = frequency, starts(segment.frequencies), ceiling, np.full(frequency.size, segment.bits)
    return np.stack([row.astype(np.uint32) for row in rows])


def by_stream(
    state: Array, ends: Array, order: Sequence[int], words: list[Array], owners: list[Array]
) -> list[tuple[Array, Array]]:
    """States and words by stream, what was handed out last first."""
    every = np.concatenate([np.empty(0, np.uint16), *reversed(words)])
    streams: list[tuple[Array, Array]] = [(state, every)] * len(order)
    if len(order) > 1:
        owner = np.searchsorted(ends, np.concatenate([np.empty(0, np.intp), *reversed(owners)]), "right")
        counts = np.cumsum(np.bincount(owner, minlength=len(order)))
        every = every[owner.argsort(kind="stable")]
        streams_of = zip(np.split(state, ends[:-1]), np.split(every, counts[:-1]), strict=True)
        for number, stream in zip(order, streams_of, strict=True):
            streams[number] = stream
    return streams


def steps(frequencies: Array, bits: int) -> Array:
    """For each slot its symbol's frequency, and how far into the symbol's range it lies."""
    pairs = np.empty((frequencies.size, 2), np.uint32)
    pairs[:, 0], pairs[:, 1] = frequencies, -starts(frequencies)
    table = pairs.repeat(frequencies, 0)
    table[:, 1] += WHOLE_NUMBERS[: 1 << bits]
    return table


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
        for start in range(0, count, rows * lanes):
            piece = out[start : start + rows * lanes]
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
