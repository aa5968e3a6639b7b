"""The page of an inversion: pictures, what was found and how sure it is, the way there."""

from collections.abc import Mapping, Sequence
from typing import Any

from torchlift.report.figures import Chart, Image, Images, Line
from torchlift.report.page import Card, Cards, KeyValues, Note, Page, Section

PlottedValues = Sequence[float | None]


def inversion_page(
    title: str,
    facts: Mapping[str, Any],
    settings: Mapping[str, Any],
    pictures: Sequence[tuple[str, bytes]],
    histories: Mapping[str, Sequence[PlottedValues]],
) -> Page:
    """``pictures`` are captions with PNG bytes; ``histories`` rows (iteration, objective, gap) by method."""
    measured = [Card(name, value) for name, value in facts.items() if isinstance(value, float)]
    stated = [Card(name, value) for name, value in facts.items() if not isinstance(value, float)]
    sections = [Section("Result", [Cards(cards) for cards in (measured, stated) if cards])]
    if facts.get("converged") == "no":
        sections[0] = Section(
            "Result",
            [*sections[0].blocks, Note("The solver met a limit before its own test was met.", "warning")],
        )
    if pictures:
        sections.append(Section("Pictures", [Images([Image(png, caption) for caption, png in pictures])]))
    charts = [chart for chart in (_objectives(histories), _gaps(histories)) if chart.lines]
    if charts:
        sections.append(Section("Convergence", charts))
    if settings:
        sections.append(Section("Settings", [KeyValues(settings)]))
    return Page(title, "A network run backward", sections)


def _objectives(histories: Mapping[str, Sequence[PlottedValues]]) -> Chart:
    lines = [
        Line(name, [float(row[0] or 0) for row in rows], [float(row[1] or 0) for row in rows])
        for name, rows in histories.items()
        if len(rows) > 1
    ]
    caption = "Rivals minimize ½‖N(x) − y‖² in place of the Bregman penalty." if len(lines) > 1 else ""
    return Chart(lines, "Objective", "iteration", "objective", log_y=True, caption=caption)


def _gaps(histories: Mapping[str, Sequence[PlottedValues]]) -> Chart:
    lines: list[Line] = []
    for name, rows in histories.items():
        seen = [(row[0], row[2]) for row in rows if row[2] is not None and 0 < row[2] < float("inf")]
        if len(seen) > 1:
            lines.append(Line(name, [float(x or 0) for x, _ in seen], [float(y) for _, y in seen]))
    return Chart(lines, "Primal–dual gap", "iteration", "gap", log_y=True)
