"""Pure functions from data to the geometry of a chart: axes, ticks, decimation, path data.

A chart is drawn in fractions of its frame (0 … 1, the origin at the lower left); ``path`` and ``area``
turn them into SVG path data on a ``SIDE`` × ``SIDE`` canvas that the page stretches to any width.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

from torchlift.report.numbers import aligned_numbers, shortest_text

SIDE = 1000
PlotPoint = tuple[float, float]
PlotRow = TypeVar("PlotRow", bound=tuple[float, ...])


@dataclass(frozen=True)
class ChartAxis:
    """The map v ↦ (v − low) / (high − low), or the same in log v."""

    low: float
    high: float
    log: bool = False

    def at(self, value: float) -> float:
        """Where ``value`` lies, 0 at the low end and 1 at the high one; NaN where it cannot be drawn."""
        if not math.isfinite(value) or (self.log and value <= 0):
            return math.nan
        turn = math.log10 if self.log else float
        return (turn(value) - turn(self.low)) / (turn(self.high) - turn(self.low))


@dataclass(frozen=True)
class Tick:
    """A labeled place on an axis, as a fraction of its length."""

    at: float
    label: str


def fit_axis(values: Iterable[float], *, log: bool = False, pad: float = 0.04) -> ChartAxis:
    """The axis that shows all finite ``values``; a linear one starts at 0 when 0 is near."""
    finite = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
    if not finite:
        return ChartAxis(0.1, 1.0, log=True) if log else ChartAxis(0.0, 1.0)
    low, high = min(finite), max(finite)
    if log:
        first, last = math.log10(low), math.log10(high)
        margin = pad * (last - first) or math.log10(2)
        below, above = 10.0 ** max(first - margin, -323.0), 10.0 ** min(last + margin, 308.0)
        return ChartAxis(min(low, below), max(high, above), log=True)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        margin = abs(low) / 10 or 1.0
        return ChartAxis(low - margin, high if high == 1.0 else high + margin)  # no share is above 1
    margin = pad * (high - low)
    near_zero = 0 <= low < 0.25 * (high - low)
    return ChartAxis(0.0 if near_zero else low - margin, high + margin)


def nice_step(span: float, most: int) -> float:
    """The smallest of 1, 2, 5 × 10ᵏ that cuts ``span`` into at most ``most`` pieces."""
    power = 10.0 ** math.floor(math.log10(span / most))
    return next(m * power for m in (1, 2, 5, 10, 20) if m * power * most >= span * (1 - 1e-9))


def tick_values(axis: ChartAxis, most: int = 6) -> list[float]:
    """Round numbers inside the axis: multiples of a nice step, or decades with 2 and 5 between."""
    if axis.log and (decades := _log_values(axis, most)):
        return decades
    step = nice_step(axis.high - axis.low, most)
    first, last = math.ceil(axis.low / step - 1e-9), math.floor(axis.high / step + 1e-9)
    decimals = max(0, -math.floor(math.log10(step)))
    return [round(index * step, decimals) for index in range(first, last + 1)]


def ticks(axis: ChartAxis, most: int = 6) -> list[Tick]:
    """``tick_values`` with their places and labels."""
    values = tick_values(axis, most)
    wide = axis.log and bool(values) and values[-1] / values[0] >= 20
    labels = [shortest_text(value) for value in values] if wide else aligned_numbers(values)
    return [Tick(axis.at(value), label) for value, label in zip(values, labels, strict=True)]


def _log_values(axis: ChartAxis, most: int) -> list[float]:
    first, last = math.floor(math.log10(axis.low)), math.ceil(math.log10(axis.high))
    for mantissas in ((1, 2, 5), (1, 3), (1,)):
        values = [m * 10.0**power for power in range(first, last + 1) for m in mantissas]
        inside = [float(f"{value:.12g}") for value in values if axis.low <= value <= axis.high]
        if 2 <= len(inside) <= most:
            return inside
    decades = [10.0**power for power in range(first, last + 1) if axis.low <= 10.0**power <= axis.high]
    return decades[:: math.ceil(len(decades) / most)] if len(decades) >= 2 else []


def decimate(y: Sequence[float], most: int = 600) -> list[int]:
    """At most about ``most`` indices that keep both ends, each bucket's extremes, and every gap."""
    if len(y) <= most:
        return list(range(len(y)))
    size = math.ceil(2 * len(y) / most)
    kept = {0, len(y) - 1}
    for start in range(0, len(y), size):
        bucket = range(start, min(start + size, len(y)))
        finite = [index for index in bucket if math.isfinite(y[index])]
        kept |= {min(finite, key=y.__getitem__), max(finite, key=y.__getitem__)} if finite else {start}
        if 0 < len(finite) < len(bucket):
            kept.add(next(index for index in bucket if not math.isfinite(y[index])))
    return sorted(kept)


def finite_runs(points: Iterable[PlotRow]) -> list[list[PlotRow]]:
    """The runs of finite points between gaps."""
    runs = groupby(points, key=lambda point: all(map(math.isfinite, point)))
    return [list(run) for finite, run in runs if finite]


def path(points: Iterable[PlotPoint]) -> str:
    """SVG path data of a polyline with a gap at every NaN; a lone point becomes a dot."""
    return "".join("M" + _join(run) if len(run) > 1 else _dot(*run[0]) for run in finite_runs(points))


def _dot(x: float, y: float) -> str:
    """A short dash: a line without length is hardly seen."""
    return f"M{round(SIDE * x - 4, 1):g},{round(SIDE * (1 - y), 1):g}h8"


def area(low: Iterable[PlotPoint], high: Iterable[PlotPoint]) -> str:
    """SVG path data of the band between two curves over the same x, with gaps where either has one."""
    runs = finite_runs([(x, below, above) for (x, below), (_, above) in zip(low, high, strict=True)])
    outlines = [[(x, a) for x, a, _ in run] + [(x, b) for x, _, b in reversed(run)] for run in runs]
    return "".join("M" + _join(outline) + "Z" for outline in outlines)


def _join(points: Iterable[PlotPoint]) -> str:
    return "L".join(f"{round(SIDE * x, 1):g},{round(SIDE * (1 - y), 1):g}" for x, y in points)
