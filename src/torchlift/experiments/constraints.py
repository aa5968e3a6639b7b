"""What a model must keep to, which of those at hand do, and which of these to take."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from torchlift.errors import TorchliftError
from torchlift.report.numbers import wilson

Z = 1.2816
"""The normal quantile of 90 %: a smaller file is taken down to the lower bound of the best accuracy."""
WORTH = 0.8
"""A file that is not a fifth smaller is not worth a worse metric."""


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
    macs: int = 0
    latency_ms: float = math.nan
    params: int = 0
    test: float | None = None
    file: str = ""
    packed: str = ""
    """How the file is to be read, or why it is not a packed file."""
    stages: tuple[dict[str, Any], ...] = ()
    fit_seconds: float = 0.0
    final: bool = False
    """Whether this is the winner, trained on from its trial."""
    reason: str = ""
    """Why there is no model; empty where there is one."""


@dataclasses.dataclass(frozen=True)
class Constraints:
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
            raise TorchliftError(f"accuracy is a fraction of one, such as 0.97; got {self.accuracy!r}.")

    def good(self, row: Delivered) -> float:
        """The metric, higher is better."""
        return row.metric if self.higher_is_better else -row.metric

    def misses(self, row: Delivered) -> dict[str, float]:
        """By how much a model falls short of each constraint, relative to it."""
        short: dict[str, float] = {}
        if self.bytes is not None and row.bytes > self.bytes:
            short["bytes"] = row.bytes / self.bytes - 1
        if self.latency is not None and row.latency_ms > self.latency:
            short["latency"] = row.latency_ms / self.latency - 1
        if self.accuracy is not None:
            lack = (self.accuracy - row.metric) * (1 if self.higher_is_better else -1)
            if lack > 0:
                short["accuracy"] = lack / max(abs(self.accuracy), 1e-12)
        return short

    def costs(self, row: Delivered) -> tuple[float, ...]:
        """What less is better of, and is the same in every search: the time of a call counts only where it is
        a constraint, for it is never measured the same twice."""
        repeatable = (-self.good(row), float(row.bytes), float(row.macs))
        return repeatable if self.latency is None else (*repeatable, row.latency_ms)

    def __str__(self) -> str:
        sign = "≥" if self.higher_is_better else "≤"
        limits = [
            self.bytes and f"file ≤ {self.bytes:,.0f} bytes",
            self.latency and f"latency ≤ {self.latency:g} ms",
            self.accuracy is not None and f"metric {sign} {self.accuracy:g}",
        ]
        return ", ".join(str(limit) for limit in limits if limit) or "none"


def dominates(one: Delivered, other: Delivered, constraints: Constraints) -> bool:
    """At least as good in all that counts, and better in one."""
    mine, theirs = constraints.costs(one), constraints.costs(other)
    return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))


def front(rows: Sequence[Delivered], constraints: Constraints) -> list[Delivered]:
    """Those that no other dominates, the smallest file first."""
    kept = [row for row in rows if not any(dominates(other, row, constraints) for other in rows)]
    return sorted(kept, key=lambda row: (row.bytes, -constraints.good(row)))


def next_rung_order(rows: Sequence[Delivered], constraints: Constraints) -> list[Delivered]:
    """Who goes on to the next rung first.

    With a constraint on size or speed, those that meet it, by the metric. Else front by front, as the metric
    of a short trial says little of what a long one reaches.
    """
    sized = dataclasses.replace(constraints, accuracy=None)
    if sized.bytes is not None or sized.latency is not None:
        return sorted(rows, key=lambda row: (sum(sized.misses(row).values()), -constraints.good(row)))
    left, order = list(rows), list[Delivered]()
    while left:
        first = [row for row in left if not any(dominates(other, row, constraints) for other in left)]
        order += sorted(first, key=lambda row: -constraints.good(row))
        left = [row for row in left if row not in first]
    return order


def superseding(rows: Sequence[Delivered], constraints: Constraints, samples: int) -> list[Delivered]:
    """Without the trials of the winner that it was trained on from, where it is as good to the noise.

    A trial that comes out a sample or two ahead of the same candidate with most of the budget does so by
    chance: its metric is not below the lower bound of the trial's.
    """
    final = next((row for row in rows if row.final), None)
    if final is None or not samples:
        return list(rows)

    def stays(row: Delivered) -> bool:
        other = row.final or (row.name, row.rate) != (final.name, final.rate)
        return other or constraints.good(final) < wilson(row.metric, samples, Z)[0]

    meets = not constraints.misses(final)
    return [row for row in rows if stays(row) or (not meets and not constraints.misses(row))]


def choose(rows: Sequence[Delivered], constraints: Constraints, samples: int) -> tuple[Delivered, str]:
    """The model to take, one of the front, and why; ``samples``: how many the metric is a share of, or 0."""
    meets = front([row for row in rows if not constraints.misses(row)], constraints)
    if not meets:
        nearest = min(
            front(rows, constraints),
            key=lambda row: (sum(constraints.misses(row).values()), -constraints.good(row)),
        )
        short = ", ".join(f"{name} by {lack:.1%}" for name, lack in constraints.misses(nearest).items())
        return nearest, f"No model meets {constraints}; this one is nearest and misses {short}."
    among = "Of all models" + ("" if str(constraints) == "none" else f" with {constraints}")
    if constraints.accuracy is not None:
        least = min(meets, key=lambda row: (row.bytes, -constraints.good(row)))
        return least, f"{among}, the one with the smallest file."
    best = max(meets, key=constraints.good)
    bound = wilson(best.metric, samples, Z)[0] if samples else best.metric
    near = [row for row in meets if constraints.good(row) >= (bound if samples else constraints.good(best))]
    smallest = min(row.bytes for row in near)
    if smallest > WORTH * best.bytes:
        return best, f"{among}, the one that does best on validation data."
    light = max((row for row in near if WORTH * row.bytes <= smallest), key=constraints.good)
    return light, (
        f"{among}, the smallest file, to a fifth, whose validation metric is above {bound:.4g}, the lower "
        f"bound of the best one's ({best.metric:.4g} on {samples} samples, {best.key})."
    )
