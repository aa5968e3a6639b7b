"""The charts of records as SVG files, light and dark, drawn with the report's own axes, ticks and palette."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from torchlift.report.figures import Chart
from torchlift.report.palette import variables
from torchlift.report.plots import Frame, chart_frame
from torchlift.report.story.reproduction import curve_charts
from torchlift.report.svg import finite_runs, fit_axis

WIDTH, HEIGHT, ROW = 360, 220, 16
MOST_LINES, MOST_PANELS = 8, 6
DASHES = ("", "6 3", "2 3", "8 3 2 3")


def draw(record: Mapping[str, Any], name: str, folder: Path) -> list[str]:
    """Write ``name-light.svg`` and ``name-dark.svg`` of a record's curves; their names, or none."""
    charts = [chart for chart in curve_charts(record) if isinstance(chart, Chart)][:MOST_PANELS]
    charts = [chart for chart in charts if any(len(line.x) > 1 for line in chart.lines)]
    if not charts:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    names: list[str] = []
    for dark in (False, True):
        names.append(f"{name}-{'dark' if dark else 'light'}.svg")
        (folder / names[-1]).write_text(picture(charts, variables(dark)))
    return names


def picture(charts: Sequence[Chart], colors: Mapping[str, str]) -> str:
    """Two charts side by side in each row."""
    across = min(2, len(charts))
    tall = HEIGHT + ROW * max(min(MOST_LINES, len(chart.lines)) for chart in charts)
    rows = (len(charts) + across - 1) // across
    width, height = across * WIDTH, rows * tall
    body = "".join(
        f'<g transform="translate({index % across * WIDTH} {index // across * tall})">'
        f"{panel(chart, colors)}</g>"
        for index, chart in enumerate(charts)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="system-ui, sans-serif" font-size="11">'
        f'<rect width="{width}" height="{height}" fill="{colors["surface"]}"/>{body}</svg>\n'
    )


def panel(chart: Chart, colors: Mapping[str, str]) -> str:
    """A frame, its ticks, its lines and their names below."""
    lines = chart.lines[:MOST_LINES]
    x = fit_axis([v for line in lines for v in line.x], log=chart.log_x, pad=0)
    y = fit_axis(
        [v for line in lines for v in (*line.y, *(line.low or ()), *(line.high or ()))], log=chart.log_y
    )
    box = chart_frame(x, y)
    left, top, wide, high = box.left + 8, 24, WIDTH - box.left - 24, HEIGHT - 70
    drawn = [text(8, 14, chart.title or chart.y_label, colors["ink"], "start")]
    drawn += grid(box, left, top, wide, high, colors)
    drawn.append(text(left + wide / 2, top + high + 32, chart.x_label, colors["muted"], "middle"))
    for number, line in enumerate(lines):
        color, dash = colors[f"s{number}"], DASHES[number % len(DASHES)]
        if line.low and line.high:
            below = [(x.at(a), y.at(b)) for a, b in zip(line.x, line.low, strict=True)]
            above = [(x.at(a), y.at(b)) for a, b in zip(line.x, line.high, strict=True)]
            edge = [(a, b) for a, b in [*below, *reversed(above)] if math.isfinite(a + b)]
            around = " ".join(f"{left + wide * a:.1f},{top + high * (1 - b):.1f}" for a, b in edge)
            drawn.append(f'<polygon points="{around}" fill="{color}" opacity="0.15"/>')
        points = [(x.at(a), y.at(b)) for a, b in zip(line.x, line.y, strict=True)]
        for run in finite_runs(points):
            path = " ".join(f"{left + wide * a:.1f},{top + high * (1 - b):.1f}" for a, b in run)
            drawn.append(
                f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.6" '
                f'stroke-dasharray="{dash}"/>'
            )
        base = HEIGHT - 4 + ROW * number
        drawn.append(
            f'<line x1="{left}" x2="{left + 24}" y1="{base - 4}" y2="{base - 4}" stroke="{color}" '
            f'stroke-width="2" stroke-dasharray="{dash}"/>'
        )
        more = (
            f" (and {len(chart.lines) - MOST_LINES} more)"
            if number == MOST_LINES - 1 < len(chart.lines) - 1
            else ""
        )
        drawn.append(text(left + 30, base, line.name + more, colors["ink"], "start"))
    return "".join(drawn)


def grid(
    box: Frame, left: float, top: float, wide: float, high: float, colors: Mapping[str, str]
) -> list[str]:
    """Lines and numbers of both axes."""
    drawn: list[str] = []
    for tick in box.y_ticks:
        at = top + high * (1 - tick.at)
        drawn.append(
            f'<line x1="{left}" x2="{left + wide}" y1="{at:.1f}" y2="{at:.1f}" stroke="{colors["line"]}"/>'
        )
        drawn.append(text(left - 4, at + 4, tick.label, colors["muted"], "end"))
    for tick in box.x_ticks[:: 2 if box.crowded else 1]:
        drawn.append(text(left + wide * tick.at, top + high + 15, tick.label, colors["muted"], "middle"))
    return drawn


def text(x: float, y: float, words: str, color: str, anchor: str) -> str:
    """Words at a place."""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}" text-anchor="{anchor}">{escape(words)}</text>'
