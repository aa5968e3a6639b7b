"""One self-contained HTML file per run, comparison or reproduction.

>>> from torchlift.report import Page, Section, Text, render
>>> "<h1>Hello</h1>" in render(Page("Hello", sections=[Section("Part", [Text("*Well*.")])]))
True
"""

from torchlift.report.figures import (
    Bars,
    Chart,
    DotRow,
    Dots,
    Heatmap,
    Image,
    Images,
    Line,
    Phase,
    Points,
    Scatter,
)
from torchlift.report.html import render, write
from torchlift.report.loops import Loops
from torchlift.report.page import (
    Card,
    Cards,
    Column,
    Details,
    KeyValues,
    Note,
    Page,
    Paragraphs,
    Section,
    Spread,
    Table,
)
from torchlift.report.standalone import beside, svg
from torchlift.report.story import comparison_page, inversion_page, reproduction_page, run_page
from torchlift.report.story.stages import stage_table

__all__ = [
    "Bars",
    "Card",
    "Cards",
    "Chart",
    "Column",
    "Details",
    "DotRow",
    "Dots",
    "Heatmap",
    "Image",
    "Images",
    "KeyValues",
    "Line",
    "Loops",
    "Note",
    "Page",
    "Paragraphs",
    "Phase",
    "Points",
    "Scatter",
    "Section",
    "Spread",
    "Table",
    "beside",
    "comparison_page",
    "inversion_page",
    "render",
    "reproduction_page",
    "run_page",
    "stage_table",
    "svg",
    "write",
]
