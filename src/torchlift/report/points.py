"""From scatter and dot plots to what their templates draw."""

import math
from collections.abc import Iterable, Sequence

from torchlift.report.figures import DotRow, Dots, Points, Scatter
from torchlift.report.numbers import interval, show
from torchlift.report.plots import Json, as_json, axes_data, chart_frame, style
from torchlift.report.svg import ChartAxis, fit_axis, ticks

TIE = 5
"""Pixels between the dots of seeds that gave the same number: they stand above one another."""


def scatter_view(scatter: Scatter) -> Json:
    """Everything ``chart.html`` draws for points with error bars."""
    x = fit_axis([v for p in scatter.points for v in _reach(p.x, p.x_error)], log=scatter.log_x, pad=0.08)
    y = fit_axis([v for p in scatter.points for v in _reach(p.y, p.y_error)], log=scatter.log_y, pad=0.08)
    series = [_points_view(points, index, x, y) for index, points in enumerate(scatter.points)]
    data = {"mode": "point", "series": [view.pop("data") for view in series], "phases": []}
    described = (f"{p.name}: {len(p.x)} points" for p in scatter.points)
    return {
        "figure": scatter,
        "frame": chart_frame(x, y),
        "series": series,
        "phases": [],
        "data": data | axes_data(scatter, x, y),
        "summary": "; ".join(described),
    }


def dots_view(dots: Dots) -> Json:
    """Everything ``dots.html`` draws."""
    ends = [v for row in dots.rows for v in (*row.values, row.low, row.high) if v is not None]
    axis = fit_axis([*ends, *([] if dots.reference is None else [dots.reference])], pad=0.06)
    reference = None if dots.reference is None else axis.at(dots.reference)
    rows = [_row_view(row, index, axis, dots.labels) for index, row in enumerate(dots.rows)]
    return {"figure": dots, "ticks": ticks(axis, 5), "reference": reference, "rows": rows}


def _row_view(row: DotRow, index: int, axis: ChartAxis, labels: Sequence[str]) -> Json:
    finite = [value for value in row.values if math.isfinite(value)]
    mean = sum(finite) / len(finite) if finite else math.nan
    names = [labels[k] if k < len(labels) else str(k) for k in range(len(row.values))]
    alike = [sum(w == v for w in row.values[:k]) for k, v in enumerate(row.values)]
    spots = [
        (axis.at(v), n, show(v), TIE * (position - (row.values.count(v) - 1) / 2))
        for v, n, position in zip(row.values, names, alike, strict=True)
        if math.isfinite(v)
    ]
    has_range = row.low is not None and row.high is not None
    label = interval(mean, row.low, row.high) if row.low is not None and row.high is not None else show(mean)
    whisker = (axis.at(row.low or 0.0), axis.at(row.high or 0.0)) if has_range else None
    position = {"mean": axis.at(mean) if finite else None, "whisker": whisker, "spots": spots}
    return {"name": row.name, "label": label, **position, **style(index, row.style)}


def _points_view(points: Points, index: int, x: ChartAxis, y: ChartAxis) -> Json:
    bare = [0.0] * len(points.x)
    errors = zip(points.x, points.y, points.x_error or bare, points.y_error or bare, strict=True)
    spots: list[Json] = [
        {"x": x.at(a), "y": y.at(b), "across": _whisker(x, a, i), "up": _whisker(y, b, j)}
        for a, b, i, j in errors
        if math.isfinite(x.at(a)) and math.isfinite(y.at(b))
    ]
    looks = style(index, points.style)
    data = {"name": points.name, **looks, "x": as_json(points.x), "y": as_json(points.y)}
    data |= {"xe": as_json(points.x_error), "ye": as_json(points.y_error), "labels": points.labels}
    return {"name": points.name, "path": "", "band": "", "spots": spots, "data": data, **looks}


def _reach(values: Sequence[float], errors: Sequence[float] | None) -> Iterable[float]:
    pairs = zip(values, errors or [0.0] * len(values), strict=True)
    return (end for value, error in pairs for end in (value - error, value + error))


def _whisker(axis: ChartAxis, value: float, error: float) -> tuple[float, float] | None:
    ends = axis.at(value - error), axis.at(value + error)
    return ends if error > 0 and all(map(math.isfinite, ends)) else None
