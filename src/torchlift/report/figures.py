"""The figures of a page as frozen values: lines, points, dots, bars, grids and pictures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from torchlift.report.numbers import Format

PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class Line:
    """y over x, NaN for a gap, with an optional band low … high; ``style`` fixes color and dashes."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    style: int | None = None

    def __post_init__(self) -> None:
        lengths = {len(values) for values in (self.x, self.y, self.low, self.high) if values is not None}
        if len(lengths) > 1 or (self.low is None) != (self.high is None):
            raise ValueError(f"Line {self.name!r}: x, y and the band (low and high) must be equally long")


@dataclass(frozen=True)
class Phase:
    """A shaded stretch x0 … x1 of a chart; phases of one label share a shade."""

    x0: float
    x1: float
    label: str


@dataclass(frozen=True)
class Chart:
    """Lines in one frame; hovering shows the values of all of them at that x."""

    lines: Sequence[Line]
    title: str = ""
    x_label: str = ""
    y_label: str = ""
    phases: Sequence[Phase] = ()
    log_x: bool = False
    log_y: bool = False
    caption: str = ""
    wide: bool = False


@dataclass(frozen=True)
class Points:
    """Named points; errors are half-widths of their bars, labels show on hover."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    x_error: Sequence[float] | None = None
    y_error: Sequence[float] | None = None
    labels: Sequence[str] | None = None
    style: int | None = None

    def __post_init__(self) -> None:
        columns = (self.x, self.y, self.x_error, self.y_error, self.labels)
        if len({len(values) for values in columns if values is not None}) > 1:
            raise ValueError(f"Points {self.name!r}: x, y, errors and labels must be equally long")


@dataclass(frozen=True)
class Scatter:
    """Points in one frame; hovering shows the nearest."""

    points: Sequence[Points]
    title: str = ""
    x_label: str = ""
    y_label: str = ""
    log_x: bool = False
    log_y: bool = False
    caption: str = ""
    wide: bool = False


@dataclass(frozen=True)
class DotRow:
    """One row of dots (a recipe's seeds) with their mean and an optional interval."""

    name: str
    values: Sequence[float]
    low: float | None = None
    high: float | None = None
    style: int | None = None


@dataclass(frozen=True)
class Dots:
    """Rows of dots over one axis; ``labels`` names the dots across rows, ``reference`` draws a line."""

    rows: Sequence[DotRow]
    labels: Sequence[str] = ()
    title: str = ""
    x_label: str = ""
    caption: str = ""
    reference: float | None = None


@dataclass(frozen=True)
class Bars:
    """Horizontal bars, one row per name; several series stand below one another in a row."""

    names: Sequence[str]
    series: Mapping[str, Sequence[float]]
    form: Format = "auto"
    title: str = ""
    caption: str = ""

    def __post_init__(self) -> None:
        for name, values in self.series.items():
            if len(values) != len(self.names):
                raise ValueError(f"Bars: {name!r} has {len(values)} values for {len(self.names)} names")


@dataclass(frozen=True)
class Heatmap:
    """A grid of numbers, rows × columns, as colors and figures; ``best`` outlines one cell."""

    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float]]
    row_label: str = ""
    column_label: str = ""
    title: str = ""
    caption: str = ""
    best: Literal["high", "low", ""] = ""

    def __post_init__(self) -> None:
        shape = (len(self.values), *sorted({len(row) for row in self.values}))
        if shape != (len(self.rows), len(self.columns)):
            raise ValueError(
                f"Heatmap: values of shape {shape} for {len(self.rows)} × {len(self.columns)} labels"
            )


@dataclass(frozen=True)
class Image:
    """The bytes of a PNG file, shown with a caption."""

    png: bytes
    caption: str
    alt: str = ""

    def __post_init__(self) -> None:
        if not self.png.startswith(PNG):
            raise ValueError(
                f"Image {self.caption!r}: not a PNG (starts with {self.png[:8]!r}); pass the file's bytes"
            )

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels, from the file's header."""
        return int.from_bytes(self.png[16:20]), int.from_bytes(self.png[20:24])


@dataclass(frozen=True)
class Images:
    """Pictures side by side."""

    images: Sequence[Image]
    title: str = ""
    caption: str = ""
