"""From cards, tables, bars and heat maps to what their templates draw."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeGuard

from torchlift.report.figures import Bars, Heatmap
from torchlift.report.numbers import (
    GAP,
    aligned_numbers,
    decimals_for,
    fixed,
    interval,
    plus_minus,
    shortest_text,
    show,
)
from torchlift.report.page import Card, Cards, CellValue, Column, KeyValues, Spread, Table
from torchlift.report.palette import heat
from torchlift.report.plots import Json
from torchlift.report.svg import fit_axis


def cards_view(cards: Cards) -> Json:
    """Everything ``cards.html`` draws."""
    return {"cards": [_card_view(card) for card in cards.cards]}


def _card_view(card: Card) -> Json:
    words = isinstance(card.value, str)
    view = {
        "words": words,
        "label": card.label,
        "value": show(card.value, card.form),
        "unit": card.unit,
        "hint": card.hint,
    }
    if card.other is None or card.value is None or isinstance(card.value, str):
        return view
    change = card.value - card.other
    good = (change < 0) == (card.better == "lower") if change and card.better else None
    return view | {
        "change": _change(card.value, card.other),
        "was": show(card.other, card.form),
        "good": good,
    }


def _change(value: float, other: float) -> str:
    if value == other:
        return "unchanged"
    arrow = "▼" if value < other else "▲"
    if other <= 0 or value <= 0:
        return arrow
    ratio = value / other
    return f"{arrow} {fixed(ratio, 1)}×" if ratio >= 3 else f"{arrow} {fixed(100 * (ratio - 1), 0)}{GAP}%"


def table_view(table: Table) -> Json:
    """Everything ``table.html`` draws: each cell's text, sort key and whether it is its column's best."""
    by_column = [
        _column_view(column, [row[number] for row in table.rows])
        for number, column in enumerate(table.columns)
    ]
    return {"table": table, "rows": list(zip(*by_column, strict=True))}


def _column_view(column: Column, cells: Sequence[CellValue]) -> list[Json]:
    keys = [_key(cell) for cell in cells]
    numbers = [key for key in keys if isinstance(key, float) and math.isfinite(key)]
    best = {"high": max, "low": min}.get(column.best, lambda _, default: default)(numbers, default=None)
    has_best = best is not None and len(numbers) > 1
    texts = _texts(column, cells)
    return [
        {"text": text, "key": _sortable(key), "best": has_best and key == best, "head": False}
        for text, key in zip(texts, keys, strict=True)
    ]


def _texts(column: Column, cells: Sequence[CellValue]) -> list[str]:
    plain = [
        float(cell) if cell is not None else math.nan
        for cell in cells
        if isinstance(cell, int | float | None)
    ]
    sizes = [abs(value) for value in plain if value and math.isfinite(value)]
    if column.form == "auto" and len(plain) == len(cells) and are_comparable(sizes):
        return _four_digits(plain)
    spreads = [cell.sd for cell in cells if isinstance(cell, Spread) and cell.sd]
    return [_cell_text(cell, column, max(map(decimals_for, spreads), default=None)) for cell in cells]


def are_comparable(sizes: Sequence[float]) -> bool:
    """Whether equal decimals show all of these numbers: 0.07 beside 25,498 would be 0."""
    return min(sizes, default=1.0) >= 1e-3 * max([1.0, *sizes])


def _four_digits(values: Sequence[float]) -> list[str]:
    """A column of plain numbers, rounded to four digits of its largest, with equal decimals."""
    top = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    digits = 3 - math.floor(math.log10(top)) if top else 0
    return aligned_numbers(
        [round(value, max(0, digits)) if math.isfinite(value) else value for value in values]
    )


def _cell_text(cell: CellValue, column: Column, decimals: int | None) -> str:
    if not isinstance(cell, Spread):
        return show(cell, column.form)
    if cell.low is not None and cell.high is not None:
        return interval(cell.mean, cell.low, cell.high, signed=cell.signed)
    return plus_minus(cell.mean, cell.sd, decimals=decimals, signed=cell.signed)


def _key(cell: CellValue) -> str | float | None:
    if isinstance(cell, Spread):
        return float(cell.mean)
    return float(cell) if isinstance(cell, int | float) else cell


def _sortable(key: str | float | None) -> str | float:
    return "" if key is None or (isinstance(key, float) and math.isnan(key)) else key


def keyvalues_view(block: KeyValues) -> Json:
    """Everything ``keyvalues.html`` draws."""
    return {"items": list(_flattened(block.items))}


def _flattened(items: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in items.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from _flattened(value, f"{name}.")
        else:
            yield name, shortest_text(float(f"{value:.6g}")) if _finite(value) else str(value)


def _finite(value: object) -> TypeGuard[float]:
    return isinstance(value, float) and math.isfinite(value)


def bars_view(bars: Bars) -> Json:
    """Everything ``bars.html`` draws: where each bar starts and how long it is."""
    values = [value for series in bars.series.values() for value in series]
    axis = fit_axis([0.0, *values], pad=0)
    zero = axis.at(0.0)
    rows = [
        (name, [_bar(series[number], axis.at(series[number]), zero, bars) for series in bars.series.values()])
        for number, name in enumerate(bars.names)
    ]
    return {"figure": bars, "rows": rows, "legend": list(bars.series) if len(bars.series) > 1 else []}


def _bar(value: float, position: float, zero: float, bars: Bars) -> Json:
    drawn = math.isfinite(position)
    return {
        "text": show(value, bars.form),
        "at": min(zero, position) if drawn else 0.0,
        "length": abs(position - zero) if drawn else 0.0,
    }


def heatmap_view(heatmap: Heatmap) -> Json:
    """Everything ``heatmap.html`` draws: each cell's text, color and ink."""
    finite = [value for row in heatmap.values for value in row if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    best = {"high": high, "low": low}.get(heatmap.best) if finite else None
    texts = iter(aligned_numbers([float(f"{value:.3g}") for row in heatmap.values for value in row]))
    rows = [
        (name, [_heat_cell(value, next(texts), low, high, best) for value in values])
        for name, values in zip(heatmap.rows, heatmap.values, strict=True)
    ]
    scale = [heat(step / 8)[0] for step in range(9)]
    return {
        "figure": heatmap,
        "rows": rows,
        "scale": scale,
        "ends": aligned_numbers([float(f"{end:.3g}") for end in (low, high)]),
    }


def _heat_cell(value: float, text: str, low: float, high: float, best: float | None) -> Json:
    if not math.isfinite(value):
        return {"text": text, "color": "", "ink": "", "best": False}
    color, ink = heat((value - low) / (high - low) if high > low else 0.5)
    return {"text": text, "color": color, "ink": ink, "best": value == best}
