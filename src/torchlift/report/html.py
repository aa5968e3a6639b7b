"""A page as one HTML file that needs nothing else: styles, script, figures and pictures are inside.

The file forbids itself any network access and any script but its own (a content security policy with the
script's hash), so a hostile name in a report stays text even if an escape were missed.
"""

import base64
import hashlib
import os
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchlift import files
from torchlift.report.figures import Bars, Chart, Dots, Heatmap, Image, Images, Scatter
from torchlift.report.loops import Loops, loops_view
from torchlift.report.page import Cards, Details, KeyValues, Note, Page, PageBlock, Paragraphs, Section, Table
from torchlift.report.palette import variables
from torchlift.report.plots import chart_view
from torchlift.report.points import dots_view, scatter_view
from torchlift.report.tables import bars_view, cards_view, heatmap_view, keyvalues_view, table_view
from torchlift.report.text import to_html

if TYPE_CHECKING:
    from jinja2 import Environment

FIGURES = (Chart, Scatter, Dots, Bars, Heatmap, Loops)


def render(page: Page) -> str:
    """The page as HTML text; the same page gives the same text."""
    environment = _environment()
    script = _source(environment, "page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    numbers = iter(range(10**9))

    def blocks(section: Section | Details) -> list[tuple[bool, list[str]]]:
        runs = groupby(section.blocks, key=lambda block: isinstance(block, FIGURES))
        return [(figures, [block_html(block) for block in run]) for figures, run in runs]

    def block_html(block: PageBlock) -> str:
        name, view = _view(block)
        return environment.get_template(name).render(view, number=next(numbers), blocks=blocks)

    return environment.get_template("page.html").render(
        page=page, blocks=blocks, script=script, digest=digest, light=variables(False), dark=variables(True)
    )


def write(page: Page, path: str | os.PathLike[str]) -> Path:
    """Write the page so that the file is either the old one or the whole new one, even through a crash."""
    return files.write_file(path, render(page).encode())


def _view(block: PageBlock) -> tuple[str, dict[str, Any]]:
    """The template of a block and what it draws."""
    match block:
        case Paragraphs() | Note():
            return "text.html", {"block": block, "note": isinstance(block, Note), "body": to_html(block.text)}
        case Cards():
            return "cards.html", cards_view(block)
        case Table():
            return "table.html", table_view(block)
        case KeyValues():
            return "keyvalues.html", keyvalues_view(block)
        case Chart():
            return "chart.html", chart_view(block)
        case Scatter():
            return "chart.html", scatter_view(block)
        case Dots():
            return "dots.html", dots_view(block)
        case Bars():
            return "bars.html", bars_view(block)
        case Heatmap():
            return "heatmap.html", heatmap_view(block)
        case Loops():
            return "loops.html", loops_view(block)
        case Images():
            return "images.html", {
                "figure": block,
                "images": [(image, _data_uri(image)) for image in block.images],
            }
        case Details():
            return "details.html", {"block": block}


def _data_uri(image: Image) -> str:
    return "data:image/png;base64," + base64.b64encode(image.png).decode()


def _source(environment: "Environment", name: str) -> str:
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


@cache
def _environment() -> "Environment":
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "report: HTML reports need jinja2, which is not installed; pip install 'torchlift[report]'",
            name="jinja2",
        ) from error
    environment = Environment(
        loader=PackageLoader("torchlift.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = _percent
    return environment


def _percent(fraction: float) -> str:
    """A place or length in a frame as SVG and CSS read it."""
    return f"{round(100 * fraction, 3):g}%"
