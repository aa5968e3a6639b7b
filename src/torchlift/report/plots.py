"""From charts to what their templates draw: places in fractions of the frame, path data, hover data."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torchlift.report.figures import Chart, Line, Phase, Scatter
from torchlift.report.numbers import significant
from torchlift.report.svg import ChartAxis, Tick, area, decimate, fit_axis, path, ticks

STYLES = 8
Json = dict[str, Any]


@dataclass(frozen=True)
class Frame:
    """Two axes with their ticks; ``left`` is the room the y labels need, in pixels."""

    x: ChartAxis
    y: ChartAxis
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    left: int
    crowded: bool


def chart_frame(x: ChartAxis, y: ChartAxis) -> Frame:
    """The frame of a chart: at most six ticks across, five up."""
    x_ticks, y_ticks = ticks(x, 6), ticks(y, 5)
    widest = max((len(tick.label) for tick in y_ticks), default=1)
    crowded = sum(len(tick.label) + 2 for tick in x_ticks) > 38
    return Frame(x, y, x_ticks, y_ticks, 16 + 7 * widest, crowded)


def style(index: int, wanted: int | None) -> Json:
    """Color, dash pattern and marker of the ``index``-th series; neighbors differ in all three."""
    number = index if wanted is None else wanted
    turn = number // STYLES
    return {"color": number % STYLES, "dash": (number + turn) % 4, "marker": (number + turn) % STYLES}


def chart_view(chart: Chart) -> Json:
    """Everything ``chart.html`` draws."""
    ends = [value for phase in chart.phases for value in (phase.x0, phase.x1)]
    x = fit_axis([*(v for line in chart.lines for v in line.x), *ends], log=chart.log_x, pad=0)
    y = fit_axis([v for line in chart.lines for v in _heights(line)], log=chart.log_y)
    series = [_line_view(line, index, x, y) for index, line in enumerate(chart.lines)]
    if len(series) == 1:
        series[0]["dash"] = 0
    data = {"mode": "x", "series": [view.pop("data") for view in series], "phases": _phase_data(chart.phases)}
    return {
        "figure": chart,
        "frame": chart_frame(x, y),
        "series": series,
        "phases": _phase_views(chart.phases, x),
        "data": data | axes_data(chart, x, y),
        "summary": "; ".join(_line_summary(line) for line in chart.lines),
    }


def _line_view(line: Line, index: int, x: ChartAxis, y: ChartAxis) -> Json:
    keep = decimate(line.y)
    across = [x.at(line.x[k]) for k in keep]
    rising = [(position, y.at(line.y[k])) for position, k in zip(across, keep, strict=True)]
    band, low, high = "", None, None
    if line.low is not None and line.high is not None:
        low, high = [line.low[k] for k in keep], [line.high[k] for k in keep]
        band = area(_over(across, low, y), _over(across, high, y))
    looks = style(index, line.style)
    xs, ys = [line.x[k] for k in keep], [line.y[k] for k in keep]
    data = {
        "name": line.name,
        **looks,
        "x": as_json(xs),
        "y": as_json(ys),
        "low": as_json(low),
        "high": as_json(high),
    }
    return {"name": line.name, "path": path(rising), "band": band, "spots": [], "data": data, **looks}


def _phase_views(phases: Sequence[Phase], x: ChartAxis) -> list[Json]:
    shades = {label: number for number, label in enumerate(dict.fromkeys(phase.label for phase in phases))}
    spans = [(x.at(phase.x0), x.at(phase.x1), phase.label) for phase in phases]
    drawn = [(a, b, label) for a, b, label in spans if b > a]
    return [{"at": a, "width": b - a, "label": label, "shade": shades[label] % 4} for a, b, label in drawn]


def _phase_data(phases: Sequence[Phase]) -> list[Json]:
    return [{"x0": _rounded(phase.x0), "x1": _rounded(phase.x1), "label": phase.label} for phase in phases]


def axes_data(figure: Chart | Scatter, x: ChartAxis, y: ChartAxis) -> Json:
    """The axes as the hover script needs them."""
    return {
        "x": {"low": x.low, "high": x.high, "log": x.log, "label": figure.x_label},
        "y": {"low": y.low, "high": y.high, "log": y.log, "label": figure.y_label},
    }


def _line_summary(line: Line) -> str:
    finite = [value for value in line.y if math.isfinite(value)]
    if not finite:
        return f"{line.name}: no values"
    ends = (finite[0], finite[-1], min(finite), max(finite))
    first, last, low, high = map(significant, ends)
    return f"{line.name}: from {first} to {last}, between {low} and {high}"


def _heights(line: Line) -> Iterable[float]:
    return (*line.y, *(line.low or ()), *(line.high or ()))


def _over(across: Iterable[float], heights: Iterable[float], y: ChartAxis) -> list[tuple[float, float]]:
    return [(position, y.at(height)) for position, height in zip(across, heights, strict=True)]


def as_json(values: Sequence[float] | None) -> list[float | None] | None:
    """Numbers for the hover script; JSON knows no NaN."""
    return None if values is None else [_rounded(value) for value in values]


def _rounded(value: float) -> float | None:
    """Six significant digits are plenty on hover and keep the file small."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
