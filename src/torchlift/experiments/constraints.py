"""What is wanted of a model, which of those at hand give it, and which of these to take."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from torchlift.errors import TorchliftError

TOLERANCE = 0.5
"""In standard errors of the best validation accuracy: what a smaller file may cost, where no wish decides."""


WORTH = 0.8
"""A file that is not a fifth smaller is no reason to take a worse metric."""


@dataclasses.dataclass(frozen=True)
class Delivered:
    """A model as it would be shipped: trained, shrunk, packed, read back, and only then measured."""

    key: str
    """Its name: candidate, rung and rate."""
    name: str
    recipe: str
    rung: int
    rate: float
    """Of the optimizer, as a multiple of the given one."""
    epochs: float
    cost: float
    """In plain epochs by FLOPs."""
    seconds: float
    metric: float = math.nan
    """On validation data."""
    bytes: int = 0
    latency_ms: float = math.nan
    params: int = 0
    test: float | None = None
    file: str = ""
    packed: str = ""
    """How the file is to be read, or why it is no packed file."""
    stages: tuple[dict[str, Any], ...] = ()
    fit_seconds: float = 0.0
    reason: str = ""
    """Why there is no model; empty where there is one."""


@dataclasses.dataclass(frozen=True)
class Wish:
    """At most so many bytes and milliseconds, at least so good a metric; each may be left open."""

    bytes: float | None = None
    latency: float | None = None
    accuracy: float | None = None
    higher_is_better: bool = True
    share: bool = False
    """Whether the metric is a share of the samples."""

    def __post_init__(self) -> None:
        for name in ("bytes", "latency", "accuracy"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, int | float):
                raise TorchliftError(f"{name} is a number; got {value!r}.")
            if value is not None and name != "accuracy" and not value > 0:
                raise TorchliftError(f"{name} is the most the model may have, above 0; got {value!r}.")
        if self.share and (self.accuracy or 0) > 1:
            raise TorchliftError(f"accuracy is a part of one, such as 0.97; got {self.accuracy!r}.")

    def good(self, row: Delivered) -> float:
        """The metric, higher is better."""
        return row.metric if self.higher_is_better else -row.metric

    def misses(self, row: Delivered) -> dict[str, float]:
        """By how much a model falls short of each wish, relative to it."""
        found: dict[str, float] = {}
        if self.bytes is not None and row.bytes > self.bytes:
            found["bytes"] = row.bytes / self.bytes - 1
        if self.latency is not None and row.latency_ms > self.latency:
            found["latency"] = row.latency_ms / self.latency - 1
        if self.accuracy is not None:
            short = (self.accuracy - row.metric) * (1 if self.higher_is_better else -1)
            if short > 0:
                found["accuracy"] = short / max(abs(self.accuracy), 1e-12)
        return found

    def __str__(self) -> str:
        sign = "≥" if self.higher_is_better else "≤"
        parts = [
            self.bytes and f"file ≤ {self.bytes:,.0f} bytes",
            self.latency and f"latency ≤ {self.latency:g} ms",
            self.accuracy is not None and f"metric {sign} {self.accuracy:g}",
        ]
        return ", ".join(str(part) for part in parts if part) or "none"


def dominates(one: Delivered, other: Delivered, wish: Wish) -> bool:
    """At least as good in accuracy, file and latency, and better in one."""
    mine = (-wish.good(one), one.bytes, one.latency_ms)
    theirs = (-wish.good(other), other.bytes, other.latency_ms)
    return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))


def front(rows: Sequence[Delivered], wish: Wish) -> list[Delivered]:
    """Those that no other dominates, the smallest file first."""
    kept = [row for row in rows if not any(dominates(other, row, wish) for other in rows)]
    return sorted(kept, key=lambda row: (row.bytes, -wish.good(row)))


def ranked(rows: Sequence[Delivered], wish: Wish) -> list[Delivered]:
    """Who goes on to the next rung first.

    With a wish for size or speed, those that meet it, by the metric. Else front by front (of metric and
    file), as the metric of a short trial says little of what a long one reaches.
    """
    sized = Wish(wish.bytes, wish.latency, None, wish.higher_is_better)
    if sized.bytes is not None or sized.latency is not None:
        return sorted(rows, key=lambda row: (sum(sized.misses(row).values()), -wish.good(row)))
    left, order = list(rows), list[Delivered]()
    while left:
        first = [row for row in left if not any(dominates(other, row, wish) for other in left)]
        order += sorted(first, key=lambda row: -wish.good(row))
        left = [row for row in left if row not in first]
    return order


def choose(rows: Sequence[Delivered], wish: Wish, samples: int, rate: bool) -> tuple[Delivered, str]:
    """The model to take, and why. ``rate``: the metric is a share of ``samples``, so its error is known."""
    meets = [row for row in rows if not wish.misses(row)]
    if not meets:
        nearest = min(rows, key=lambda row: (sum(wish.misses(row).values()), -wish.good(row)))
        short = ", ".join(f"{name} by {part:.1%}" for name, part in wish.misses(nearest).items())
        return nearest, f"No model met the wish ({wish}); this one is nearest and misses {short}."
    if wish.accuracy is not None:
        least = min(meets, key=lambda row: (row.bytes, -wish.good(row)))
        return least, f"Of {len(meets)} models that meet the wish ({wish}), the one with the smallest file."
    best = max(meets, key=wish.good)
    error = math.sqrt(max(best.metric * (1 - best.metric), 0.0) / max(samples, 1)) if rate else 0.0
    near = [row for row in meets if wish.good(row) >= wish.good(best) - TOLERANCE * error]
    smallest = min(row.bytes for row in near)
    light = [row for row in near if WORTH * row.bytes <= smallest]
    least = best if smallest > WORTH * best.bytes else max(light, key=wish.good)
    among = f"Of {len(meets)} models" + ("" if str(wish) == "none" else f" that meet the wish ({wish})")
    if least is best:
        return least, f"{among}, the one that does best on validation data."
    width = TOLERANCE * error
    return least, (
        f"{among}, the smallest file, to a fifth, within {TOLERANCE:g} standard errors ({width:.2g}) of the "
        f"best validation metric ({best.metric:.4g}, {best.key})."
    )
