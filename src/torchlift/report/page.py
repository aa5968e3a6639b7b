"""What a page is made of: frozen values, without a word of HTML.

    Page → Section → Text · Note · Cards · Table · KeyValues · Chart · Scatter · Dots · Bars · Heatmap ·
                     Loops · Images · Details

``torchlift.report.render`` turns a page into one HTML file. All strings may come from users: they are
escaped there, once, by the templates.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from torchlift.report.figures import Bars, Chart, Dots, Heatmap, Images, Scatter
from torchlift.report.loops import Loops
from torchlift.report.numbers import Format


@dataclass(frozen=True)
class Paragraphs:
    """Paragraphs: blank lines part them, ``- `` starts a list item, `code`, **strong**, *emphasis*."""

    text: str


@dataclass(frozen=True)
class Note:
    """A text that stands out: what was found, or what to beware of."""

    text: str
    kind: Literal["finding", "info", "warning"] = "info"
    title: str = ""


@dataclass(frozen=True)
class Card:
    """One figure with its unit; ``other`` is the same figure of another model, shown as a change."""

    label: str
    value: float | str | None
    form: Format = "auto"
    unit: str = ""
    other: float | None = None
    better: Literal["lower", "higher", ""] = ""
    hint: str = ""


@dataclass(frozen=True)
class Cards:
    """A row of figures."""

    cards: Sequence[Card]


@dataclass(frozen=True)
class Spread:
    """A mean with its standard deviation, or with an interval [low, high]."""

    mean: float
    sd: float | None = None
    low: float | None = None
    high: float | None = None
    signed: bool = False


CellValue = str | float | Spread | None


@dataclass(frozen=True)
class Column:
    """A column's name and how its values read; ``best`` marks the highest or lowest."""

    name: str
    form: Format = "auto"
    align: Literal["left", "right"] = "right"
    best: Literal["high", "low", ""] = ""
    hint: str = ""


@dataclass(frozen=True)
class Table:
    """Rows under columns, sorted by a click on a column's name."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[CellValue]]
    caption: str = ""
    title: str = ""

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(f"Table: row {number} has {len(row)} cells for {len(self.columns)} columns")


@dataclass(frozen=True)
class KeyValues:
    """Settings and the like; nested mappings become dotted keys."""

    items: Mapping[str, object]


@dataclass(frozen=True)
class Details:
    """Blocks behind a line that opens on a click."""

    summary: str
    blocks: Sequence["PageBlock"]
    open: bool = False


Figure = Chart | Scatter | Dots | Bars | Heatmap | Loops | Images

PageBlock = Paragraphs | Note | Cards | Table | KeyValues | Figure | Details


@dataclass(frozen=True)
class Section:
    """A heading and its blocks; charts that follow one another stand side by side where there is room."""

    title: str
    blocks: Sequence[PageBlock]


@dataclass(frozen=True)
class Page:
    """A whole report."""

    title: str
    subtitle: str = ""
    sections: Sequence[Section] = field(default=())
