"""Figures as SVG files of their own, for pages that are not ours: a README, Sphinx.

One file shows itself in light or dark colors, as the reader's browser asks (``prefers-color-scheme``).

>>> picture = svg(Bars(["before", "after"], {"bytes": [4096.0, 300.0]}, form="bytes", title="the file"))
>>> picture.startswith("<svg") and "4.10 kB" in picture.replace("\\N{NO-BREAK SPACE}", " ")
True
"""

import math
from collections.abc import Iterator, Sequence
from html import escape

from torchlift.report.figures import Bars, Chart, Scatter
from torchlift.report.numbers import show
from torchlift.report.palette import variables
from torchlift.report.plots import Frame, Json, chart_view
from torchlift.report.points import scatter_view

WIDTH, HEIGHT = 720, 360
TOP, RIGHT, BOTTOM, LEGEND = 40, 20, 44, 20
BAR, GAP = 22, 10
DASHES = ("", "6 3", "2 3", "8 3 2 3")
FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"


def svg(figure: Chart | Scatter | Bars, width: int = WIDTH, height: int = HEIGHT) -> str:
    """The figure as the text of an SVG file; bars are as high as they need to be."""
    if isinstance(figure, Bars):
        return bars(figure, width)
    view = chart_view(figure) if isinstance(figure, Chart) else scatter_view(figure)
    return framed(view, width, height)


def beside(figures: Sequence[Chart | Scatter | Bars], width: int = WIDTH) -> str:
    """Several figures in a row, as one SVG."""
    each = width // len(figures)
    pictures = [svg(figure, each) for figure in figures]
    height = max(int(picture.split('height="', 1)[1].split('"', 1)[0]) for picture in pictures)
    moved = [p.replace("<svg ", f'<svg x="{k * each}" ', 1) for k, p in enumerate(pictures)]
    return document(width, height, moved, "; ".join(figure.title for figure in figures))


def document(width: int, height: int, body: Sequence[str], title: str) -> str:
    """The outermost element, with both sets of colors."""
    light, dark = (";".join(f"--{k}:{v}" for k, v in variables(night).items()) for night in (False, True))
    style = f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}text{{fill:var(--ink)}}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" font-family="{FONT}" font-size="12">'
        f"<title>{escape(title)}</title><style>{style}</style>{''.join(body)}</svg>"
    )


def text(x: float, y: float, words: str, anchor: str = "start", extra: str = "") -> str:
    """One line of text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {extra}>{escape(words)}</text>'


def heading(title: str) -> str:
    """The title at the upper left."""
    return text(8, 22, title, extra='font-size="15" font-weight="600"')


def bars(figure: Bars, width: int) -> str:
    """Names on the left, bars from zero, each with its value."""
    left = 16 + 7 * max(map(len, figure.names), default=1)
    numbers = [v for values in figure.series.values() for v in values if math.isfinite(v)]
    labels = [show(value, figure.form) for value in numbers]
    room = width - left - 16 - 7 * max(map(len, labels), default=1)
    scale = room / (max(numbers, default=0.0) or 1.0)
    body, y = [heading(figure.title)], TOP
    for row, name in enumerate(figure.names):
        body.append(text(left - 8, y + BAR * len(figure.series) / 2 + 4, name, "end"))
        for color, values in enumerate(figure.series.values()):
            length = max(1.0, scale * values[row]) if math.isfinite(values[row]) else 0.0
            shade = row if len(figure.series) == 1 else color
            fill = f"var(--s{shade % 8})"
            body.append(
                f'<rect x="{left}" y="{y}" width="{length:.1f}" height="{BAR - 4}" rx="3" fill="{fill}"/>'
            )
            body.append(text(left + length + 6, y + BAR - 9, show(values[row], figure.form)))
            y += BAR
        y += GAP
    return document(
        width, y + (24 if figure.caption else 4), [*body, text(8, y + 12, figure.caption)], figure.title
    )


def framed(view: Json, width: int, height: int) -> str:
    """Axes, series and a legend."""
    figure, frame = view["figure"], view["frame"]
    rows = math.ceil(len(view["series"]) / 3) if len(view["series"]) > 1 else 0
    left, top = frame.left + 18, TOP + LEGEND * rows
    inner = (left, top, width - left - RIGHT, height - top - BOTTOM)
    body = [heading(figure.title), *axes(frame, inner, figure.x_label, figure.y_label)]
    for index, series in enumerate(view["series"]):
        body += drawn_series(series, inner)
        if rows:
            body += legend(series, 8 + (index % 3) * (width - 16) / 3, TOP + LEGEND * (index // 3))
    return document(width, height, body, f"{figure.title}: {view['summary']}")


Extents = tuple[float, float, float, float]


def axes(frame: Frame, box: Extents, x_label: str, y_label: str) -> Iterator[str]:
    """The frame, its grid and its labels."""
    left, top, wide, high = box
    yield f'<rect x="{left}" y="{top}" width="{wide}" height="{high}" fill="none" stroke="var(--line)"/>'
    for tick in frame.y_ticks:
        y = top + high * (1 - tick.at)
        yield f'<line x1="{left}" x2="{left + wide}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--line)"/>'
        yield text(left - 6, y + 4, tick.label, "end")
    for tick in frame.x_ticks:
        yield text(left + wide * tick.at, top + high + 16, tick.label, "middle")
    yield text(left + wide / 2, top + high + 34, x_label, "middle")
    middle = top + high / 2
    yield text(14, middle, y_label, "middle", f'transform="rotate(-90 14 {middle:.1f})"')


def drawn_series(series: Json, box: Extents) -> Iterator[str]:
    """A band, a line, and points with their error bars."""
    left, top, wide, high = box
    color = f"var(--s{series['color']})"
    if series["path"]:
        turn = f'transform="translate({left} {top}) scale({wide / 1000:.5f} {high / 1000:.5f})"'
        if series["band"]:
            yield f'<path d="{series["band"]}" {turn} fill="{color}" opacity="0.18"/>'
        line = f'fill="none" stroke="{color}" stroke-width="2" vector-effect="non-scaling-stroke"'
        yield f'<path d="{series["path"]}" {turn} {line} {dashes(series)}/>'
    for spot in series["spots"]:
        x, y = left + wide * spot["x"], top + high * (1 - spot["y"])
        if spot["up"]:
            low, above = (top + high * (1 - end) for end in spot["up"])
            yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{above:.1f}" stroke="{color}"/>'
        if spot["across"]:
            low, above = (left + wide * end for end in spot["across"])
            yield f'<line x1="{low:.1f}" x2="{above:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{color}"/>'
        yield marker(series["marker"], x, y, color)


def dashes(series: Json) -> str:
    """The dash pattern of a series."""
    return f'stroke-dasharray="{DASHES[series["dash"]]}"' if series["dash"] else ""


def marker(kind: int, x: float, y: float, color: str) -> str:
    """Circle, square, triangle or diamond; filled, or hollow for the next four."""
    paint = f'fill="{color}"' if kind < 4 else f'fill="var(--surface)" stroke="{color}" stroke-width="2"'
    if kind % 4 == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" {paint}/>'
    corners = {
        1: ((-4, -4), (4, -4), (4, 4), (-4, 4)),
        2: ((0, -5), (5, 4), (-5, 4)),
        3: ((0, -6), (5, 0), (0, 6), (-5, 0)),
    }[kind % 4]
    points = " ".join(f"{x + a:.1f},{y + b:.1f}" for a, b in corners)
    return f'<polygon points="{points}" {paint}/>'


def legend(series: Json, x: float, y: float) -> Iterator[str]:
    """The look of a series and its name."""
    color = f"var(--s{series['color']})"
    if series["path"]:
        ends = f'x1="{x:.1f}" x2="{x + 22:.1f}" y1="{y:.1f}" y2="{y:.1f}"'
        yield f'<line {ends} stroke="{color}" stroke-width="2" {dashes(series)}/>'
    else:
        yield marker(series["marker"], x + 11, y, color)
    yield text(x + 28, y + 4, series["name"])
