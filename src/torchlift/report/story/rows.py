"""Reading history rows: numbers or NaN, runs of rows that belong to one fit, curves over cumulative cost."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from numbers import Real
from typing import Any

import numpy as np

from torchlift.report.figures import Line, Phase, Points

PageData = Mapping[str, Any]
Rows = Sequence[PageData]
COST = "cost (plain epochs)"
CHARTED = frozenset(
    {"fit", "phase", "epoch", "step", "train_loss", "valid_loss", "metric", "cost", "seconds", "lr"}
)


def finite_or_nan(value: object) -> float:
    """A finite number as it is, anything else as NaN."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return math.nan
    return float(value) if math.isfinite(value) else math.nan


def column_of(rows: Rows, key: str) -> list[float]:
    """One key of all rows."""
    return [finite_or_nan(row.get(key)) for row in rows]


def rows_by_fit(history: Rows) -> list[list[PageData]]:
    """The rows of each fit, in order."""
    return [list(rows) for _, rows in groupby(history, key=lambda row: (row.get("fit"), row.get("phase")))]


def phases(history: Rows) -> list[Phase]:
    """Where on the cost axis each fit ran: from the end of the one before to its own end."""
    result, start = [], 0.0
    for rows in rows_by_fit(history):
        end = max((cost for cost in column_of(rows, "cost") if math.isfinite(cost)), default=start)
        result.append(Phase(start, end, str(rows[0].get("phase", ""))))
        start = end
    return result if len(result) > 1 else []


def curve(history: Rows, key: str, name: str, style: int | None = None) -> Line | None:
    """``key`` over cost, None if it was not logged; a gap between fits, whose objectives may differ."""
    x: list[float] = []
    y: list[float] = []
    for rows in rows_by_fit(history):
        recorded = [
            (finite_or_nan(row.get("cost")), finite_or_nan(row[key]))
            for row in rows
            if row.get(key) is not None
        ]
        if recorded:
            x += [cost for cost, _ in recorded] + [recorded[-1][0]]
            y += [value for _, value in recorded] + [math.nan]
    return Line(name, x[:-1], y[:-1], style=style) if any(map(math.isfinite, y)) else None


def extras(history: Rows) -> list[str]:
    """The further numeric keys a recipe logged, those that change, in order of appearance."""
    keys = dict.fromkeys(key for row in history for key in row if key not in CHARTED and not is_map_row(key))
    return [
        key for key in keys if len({value for value in column_of(history, key) if math.isfinite(value)}) > 1
    ]


def is_map_row(key: str) -> bool:
    """Whether a key is one of a map's rows: a number of one layer among many."""
    return key.startswith(("linearity ", "cka "))


def mean_curve(
    histories: Iterable[Rows],
    key: str,
    name: str,
    style: int | None = None,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> Line | None:
    """Mean ± sd over seeds, inside ``bounds``, at every cost any logged, up to where the shortest ends."""
    lines = [line for rows in histories if (line := curve(rows, key, name)) is not None]
    seeds = [[(x, y) for x, y in zip(line.x, line.y, strict=True) if math.isfinite(x + y)] for line in lines]
    if not seeds or not all(seeds):
        return None
    start, end = max(seed[0][0] for seed in seeds), min(seed[-1][0] for seed in seeds)
    grid = sorted({x for seed in seeds for x, _ in seed if start <= x <= end})
    values = np.array([np.interp(grid, [x for x, _ in seed], [y for _, y in seed]) for seed in seeds])
    mean = values.mean(axis=0)
    if len(seeds) == 1:
        return Line(name, grid, mean.tolist(), style=style)
    sd = values.std(axis=0, ddof=1)
    low, high = np.clip(mean - sd, *bounds), np.clip(mean + sd, *bounds)
    return Line(name, grid, mean.tolist(), low.tolist(), high.tolist(), style=style)


def wants_log(lines: Iterable[Line]) -> bool:
    """Positive values over more than a decade and a half read better on a log scale."""
    values = [value for line in lines for value in (*line.y, *(line.low or ())) if math.isfinite(value)]
    return bool(values) and min(values) > 0 and max(values) / min(values) > 30


def sentence(word: str) -> str:
    """valid_loss → Valid loss."""
    text = word.replace("_", " ")
    return text[:1].upper() + text[1:]


def spaced(count: int, most: int) -> list[int]:
    """Up to ``most`` of the numbers 0, …, count − 1, evenly, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return [round(n * (count - 1) / (most - 1)) for n in range(most)]


def metric_against(history: Rows, key: str, scale: float = 1.0) -> list[Points]:
    """The metric against ``scale`` times a key, a point per epoch and a set of points per fit; the metric of
    the projected network where that was measured. Empty where the key never changes."""
    points: list[Points] = []
    for rows in rows_by_fit(history):
        pairs = [
            (
                scale * finite_or_nan(row.get(key)),
                finite_or_nan(row.get("projected_metric", row.get("metric"))),
            )
            for row in rows
        ]
        finite = [(x, y) for x, y in pairs if math.isfinite(x) and math.isfinite(y)]
        if finite:
            x, y = ([pair[i] for pair in finite] for i in (0, 1))
            points.append(Points(str(rows[0].get("phase", "")), x, y))
    return points if len({x for one in points for x in one.x}) > 1 else []
