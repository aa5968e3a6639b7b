"""What a model is to have (zeros, parameters, MACs, bytes, milliseconds, bits), and the one search for it."""

import contextlib
import dataclasses
from collections.abc import Callable, Generator
from contextvars import ContextVar

from torchlift.errors import TorchliftError

TOLERANCE = 0.02
"""Of a target: what may be missed without a warning, where a network comes in whole pieces."""

CARD: ContextVar[Callable[[], int]] = ContextVar("CARD", default=lambda: 0)


@contextlib.contextmanager
def counting_card(size: Callable[[], int]) -> Generator[None]:
    """Inside, a target of bytes counts the card that the delivered file will hold."""
    token = CARD.set(size)
    try:
        yield
    finally:
        CARD.reset(token)


def card_bytes() -> int:
    """The bytes of the card that goes into the file; 0 outside of a run."""
    return CARD.get()()


@dataclasses.dataclass(frozen=True)
class Target:
    """The ``name`` of a model, such as its bytes, is to be ``value``."""

    name: str
    value: float

    @classmethod
    def one_of(cls, **targets: float | None) -> "Target | None":
        """The one that was given, or None; two are an error."""
        named = {name: float(value) for name, value in targets.items() if value is not None}
        if len(named) > 1:
            raise TorchliftError(f"give one target, not {len(named)}: {', '.join(named)}.")
        return next((cls(name, value) for name, value in named.items()), None)

    def row(self) -> dict[str, float]:
        """For the history, where what was achieved stands under the name itself."""
        return {f"{self.name}_target": self.value}

    def missed_by(self, achieved: float) -> bool:
        """Whether this is too far off to be passed over."""
        return abs(achieved - self.value) > TOLERANCE * self.value

    def check(self, least: float, most: float, whose: str) -> None:
        """Raise where it lies outside what can be achieved."""
        if not least <= self.value <= most:
            raise TorchliftError(f"{self} is out of reach of {whose}: it leaves {least:.0f} to {most:.0f}.")

    def __str__(self) -> str:
        return f"{self.name}={self.value:g}"


@dataclasses.dataclass(frozen=True)
class Solution:
    """Where a target is met, what is achieved there, and the bracket that is left around it."""

    at: float
    achieved: float
    low: float
    high: float


def solve_for_target(
    measure: Callable[[float], float],
    target: float,
    low: float,
    high: float,
    *,
    steps: int = 30,
    at_most: bool = False,
) -> Solution:
    """argmin over x ∈ [low, high] of \\|measure(x) − target\\|, for a measure that rises or falls along x.

    The bracket shrinks by interpolation and bisection in turn: the first is quick where the measure is nearly
    a line, the second where it is a stair. The answer is the nearest of all that was measured; ``at_most``,
    the nearest that is not above the target, or the least.
    """
    tried = {low: measure(low), high: measure(high)}
    rising = tried[low] <= tried[high]
    ends = low, high
    for step in range(steps):
        below, above = tried[ends[0]] - target, tried[ends[1]] - target
        if step % 2 or below * above >= 0:
            middle = 0.5 * (ends[0] + ends[1])
        else:
            middle = ends[0] + (ends[1] - ends[0]) * below / (below - above)
        tried[middle] = measure(middle)
        if tried[middle] == target:
            return Solution(middle, target, middle, middle)
        ends = (ends[0], middle) if (tried[middle] > target) == rising else (middle, ends[1])
    kept = [x for x in tried if tried[x] <= target] if at_most else list(tried)
    best = min(kept or tried, key=lambda x: abs(tried[x] - target))
    return Solution(best, tried[best], *ends)
