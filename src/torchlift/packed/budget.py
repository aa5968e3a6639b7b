"""What reading a file may take: every byte is counted before it is allocated."""

import contextlib
from collections.abc import Generator, Iterable

from torchlift.errors import TorchliftError, printable

FLOOR = 256 * 2**20
GROWTH = 1024
STEPS = 1 << 16
"""Steps of the decoder that any file may take, about half a second, beside one for each of its bytes."""


class PackedError(TorchliftError):
    """A file that is not a whole, honest torchlift model; the message is one printable line."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class Budget:
    """A limit in bytes and what is allocated under it; steps of the decoder are counted too, a byte each."""

    def __init__(self, limit: int, steps: int = STEPS) -> None:
        self.limit, self.used, self.steps = limit, 0, steps

    def step(self, count: int) -> None:
        """Allow the decoder so many more steps, or raise: code of an honest writer has fewer than bytes."""
        self.steps -= count
        if self.steps < 0:
            raise PackedError("the code has too few lanes for its symbols: reading it would take too long.")

    def take(self, size: int, what: str) -> None:
        """Count ``size`` more bytes as allocated, or raise."""
        if size > self.limit - self.used:
            raise PackedError(
                f"{what} would take {printed(size)} where {printed(self.limit - self.used)} of the limit are "
                "left; raise limit= if you trust the file."
            )
        self.used += size

    @contextlib.contextmanager
    def lend(self, size: int, what: str) -> Generator[None]:
        """Hold ``size`` bytes for a while."""
        self.take(size, what)
        try:
            yield
        finally:
            self.used -= size


def default_limit(size: int) -> int:
    """What a file of ``size`` bytes may unfold to unless its reader says otherwise: 256 MiB + 1024 × size."""
    return FLOOR + GROWTH * size


def printed(size: int) -> str:
    """Bytes for a reader."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}"
        size = size // 1024
    return f"{size:,} TiB" if size < 10**9 else "far too many bytes"


def bounded_product(factors: Iterable[object], ceiling: int = 2**48) -> int:
    """The product of a shape's dimensions, zeros aside bounded too: an error as soon as it passes the
    ceiling."""
    count, zero = 1, False
    for rank, n in enumerate(factors):
        if type(n) is not int or n < 0 or rank >= 64:
            raise PackedError("a shape is not a list of at most 64 whole numbers.")
        zero = zero or n == 0
        count *= max(n, 1)
        if count > ceiling:
            raise PackedError("a shape has more entries than any memory holds.")
    return 0 if zero else count
