"""The page of a reproduction: a paper's claim beside what was measured, and at what scale."""

import base64
from collections.abc import Mapping, Sequence
from itertools import groupby

from torchlift.report.figures import Chart, Heatmap, Image, Images, Line
from torchlift.report.page import Card, Cards, CellValue, Column, Note, Page, PageBlock, Spread, Table
from torchlift.report.story.precision import size_scatter
from torchlift.report.story.rows import PageData, finite_or_nan, sentence, wants_log
from torchlift.report.story.run import notes, sections, settings


def reproduction_page(entry: PageData) -> Page:
    """One reproduced result: finding, facts, table, curves, notes."""
    return Page(
        str(entry.get("title") or "Reproduction"),
        str(entry.get("source") or ""),
        sections(
            ("Finding", [*finding(entry), *facts(entry)]),
            ("Measured", measured_table(entry)),
            ("Curves", [*size_figure(entry), *curve_charts(entry)]),
            ("Similarities", heat_maps(entry)),
            ("Images", picture_row(entry)),
            ("Notes", notes(entry)),
            ("Settings", settings(entry)),
        ),
    )


def finding(entry: PageData) -> list[PageBlock]:
    """What came out, in words."""
    return [Note(str(entry["finding"]), "finding", "Findings")] if entry.get("finding") else []


def facts(entry: PageData) -> list[PageBlock]:
    """Scale, seeds and machine: what one needs to judge the figures."""
    seeds = entry.get("seeds")
    listed = ", ".join(map(str, seeds)) if isinstance(seeds, list | tuple) else seeds
    values = {"scale": entry.get("scale"), "seeds": listed, "machine": machine(entry.get("machine"))}
    cards = [Card(label, str(value)) for label, value in values.items() if value not in (None, "")]
    return [Cards(cards)] if cards else []


def machine(value: object) -> object:
    """A machine given as a mapping reads as a list of its facts."""
    return ", ".join(f"{key} {fact}" for key, fact in value.items()) if isinstance(value, Mapping) else value


def measured_table(entry: PageData) -> list[PageBlock]:
    """``columns`` are names; ``rows`` are lists, or mappings by those names."""
    names, rows = [str(name) for name in entry.get("columns") or []], entry.get("rows") or []
    if not names or not rows:
        return []
    listed = [[row.get(name) for name in names] if isinstance(row, Mapping) else list(row) for row in rows]
    cells = [[cell(value) for value in row] for row in listed]
    wordy = [any(isinstance(row[column], str) for row in cells) for column in range(len(names))]
    heads = [
        Column(name, align="left" if words else "right") for name, words in zip(names, wordy, strict=True)
    ]
    return [Table(heads, cells)]


def cell(value: object) -> CellValue:
    """A number, a text, or a mapping with ``mean`` and ``sd`` or ``low`` and ``high``."""
    if isinstance(value, Mapping) and "mean" in value:
        sd, low, high = (
            finite_or_nan(value[key]) if value.get(key) is not None else None for key in ("sd", "low", "high")
        )
        return Spread(finite_or_nan(value["mean"]), sd, low, high)
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    return str(value)


def size_figure(entry: PageData) -> list[PageBlock]:
    """``sizes``: for each method its points (bytes of the file, metric, spread)."""
    arms = {
        str(name): [(finite_or_nan(b), finite_or_nan(m), finite_or_nan(e)) for b, m, e in rows]
        for name, rows in (entry.get("sizes") or {}).items()
    }
    return [size_scatter(arms, str(entry.get("y_label") or "metric"))] if arms else []


def heat_maps(entry: PageData) -> list[PageBlock]:
    """``matrices``: a ``name`` and square ``values`` between 0 and 1 each, as heat maps."""
    drawn: list[PageBlock] = []
    for one in entry.get("matrices") or []:
        names = [str(number + 1) for number in range(len(one["values"]))]
        drawn.append(Heatmap(names, names, one["values"], "layer", "layer", str(one["name"])))
    return drawn


def picture_row(entry: PageData) -> list[PageBlock]:
    """``images``: a ``name`` and the ``png`` in base64 each, side by side."""
    shown = [Image(base64.b64decode(one["png"]), str(one["name"])) for one in entry.get("images") or []]
    return [Images(shown)] if shown else []


def curve_charts(entry: PageData) -> list[PageBlock]:
    """One chart per ``panel`` of the curves (all in one when none is named), in their order."""
    curves: Sequence[PageData] = entry.get("curves") or []
    panels = groupby(curves, key=lambda one: str(one.get("panel") or ""))
    return [_panel(entry, panel, [_line(one) for one in lines]) for panel, lines in panels]


def _panel(entry: PageData, panel: str, lines: list[Line]) -> Chart:
    x_label, y_label = str(entry.get("x_label") or ""), panel or str(entry.get("y_label") or "")
    return Chart(lines, sentence(panel), x_label, y_label, log_y=wants_log(lines), wide=not panel)


def _line(one: PageData) -> Line:
    x, y = (
        [finite_or_nan(value) for value in one.get("x") or []],
        [finite_or_nan(value) for value in one.get("y") or []],
    )
    low, high = _band(one.get("band"))
    return Line(str(one.get("name") or ""), x or list(map(float, range(len(y)))), y, low, high)


def _band(band: object) -> tuple[list[float] | None, list[float] | None]:
    """``[low, high]`` or ``{"low": …, "high": …}``, each a list over x."""
    sides: Sequence[object] = ()
    if isinstance(band, Mapping):
        sides = band.get("low"), band.get("high")
    elif isinstance(band, list | tuple):
        sides = band
    both_sides = [
        [finite_or_nan(value) for value in side] for side in sides if isinstance(side, list | tuple)
    ]
    return (both_sides[0], both_sides[1]) if len(both_sides) == 2 else (None, None)
