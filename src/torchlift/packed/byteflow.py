"""Whole numbers one after the other: seven bits a byte, the least first, the top bit says that more
follow."""

from typing import Any, BinaryIO

import numpy as np

from torchlift.packed.budget import PackedError

Array = np.ndarray[Any, Any]

LONGEST = 9
"""Bytes of a number that fits into 63 bits."""


class ByteSink:
    """Takes numbers and bytes in."""

    def __init__(self) -> None:
        self.data = bytearray()

    def number(self, value: int) -> None:
        """Append a number ≥ 0."""
        while value > 127:
            self.data.append(value & 127 | 128)
            value >>= 7
        self.data.append(value)

    def signed(self, value: int) -> None:
        """Append any number: 0, −1, 1, −2, … as 0, 1, 2, 3, …"""
        self.number(2 * value if value >= 0 else -2 * value - 1)

    def bytes(self, value: bytes) -> None:
        """Append bytes as they are."""
        self.data += value


class ByteSource:
    """Gives them back, and nothing beyond the end."""

    def __init__(self, data: bytes | memoryview) -> None:
        self.data, self.at = data, 0

    def number(self, most: int = 2**63) -> int:
        """The next number, if it is at most ``most``."""
        value, shift = 0, 0
        while True:
            if self.at >= len(self.data) or shift > 63:
                raise PackedError("a number runs past the end.")
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        if value > most:
            raise PackedError(f"a number is {value} where at most {most} makes sense.")
        return value

    def signed(self) -> int:
        """The next number of either sign."""
        value = self.number()
        return -(value + 1) // 2 if value & 1 else value // 2

    def numbers(self, count: int, most: int = 2**63 - 1) -> Array:
        """The next ``count`` numbers, each at most ``most``: as many calls of ``number``, all at once."""
        if not count:
            return np.empty(0, np.int64)
        window = np.frombuffer(self.data, np.uint8)[self.at : self.at + LONGEST * count]
        if window.size >= count and int(window[:count].max()) <= min(most, 127):  # a byte each
            self.at += count
            return window[:count].astype(np.int64)
        ends = np.flatnonzero(window < 128)[:count]
        if ends.size < count:
            raise PackedError("a number runs past the end.")
        begins = np.concatenate(([0], ends[:-1] + 1))
        length = ends - begins
        if int(length.max()) >= LONGEST:
            raise PackedError("a number runs past the end.")
        numbers = (window[begins] & 127).astype(np.int64)
        for digit in range(1, int(length.max()) + 1):
            more = np.flatnonzero(length >= digit)
            numbers[more] |= (window[begins[more] + digit] & 127).astype(np.int64) << (7 * digit)
        if int(numbers.max()) > most:
            raise PackedError(f"a number is {int(numbers.max())} where at most {most} makes sense.")
        self.at += int(ends[-1]) + 1
        return numbers

    def signs(self, count: int) -> Array:
        """The next ``count`` numbers of either sign."""
        numbers = self.numbers(count)
        return np.where(numbers & 1, -(numbers >> 1) - 1, numbers >> 1)

    def bytes(self, count: int) -> bytes | memoryview:
        """The next ``count`` bytes."""
        if not 0 <= count <= len(self.data) - self.at:
            raise PackedError("a stream lies outside the file.")
        self.at += count
        return self.data[self.at - count : self.at]

    def close(self) -> None:
        """Nothing is left."""
        if self.at != len(self.data):
            raise PackedError("there are bytes after the last stream.")


class Cursor:
    """A stretch of a file that is read from its front to its end, never beyond."""

    def __init__(self, file: BinaryIO, start: int, length: int) -> None:
        self.file, self.at, self.left = file, start, length

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        if not 0 <= count <= self.left:
            raise PackedError("a stream is shorter than its tensor.")
        self.file.seek(self.at)
        data = self.file.read(count)
        if len(data) != count:
            raise PackedError("the file ends within a stream.")
        self.at, self.left = self.at + count, self.left - count
        return data
