"""What ``compress`` returns: the small network, what became of each layer, and the files that hold it."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn


@dataclasses.dataclass(frozen=True)
class LayerRow:
    """What became of one weight."""

    layer: str
    shape: tuple[int, ...]
    before: tuple[int, ...]
    """Its shape in the model that was given."""
    bits: int | None = None
    zeros: float = 0.0
    error: float | None = None
    """‖y − ŷ‖² / ‖y‖² of the layer's outputs on the calibration data."""
    sensitivity: float | None = None
    """The change of the network's output when this layer alone has the fewest bits that were tried."""
    why: str = ""
    """Why it stays as it is, if it does."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Compressed:
    """A compressed network. All figures are those of the model as it is read back from its file."""

    model: nn.Module
    """Plain, in evaluation mode, with storage records."""
    rows: list[LayerRow]
    card: dict[str, Any]
    """Targets, what was achieved, input and output shapes, provenance."""
    example: Any
    samples: tuple[Tensor, Tensor]
    """Outputs before and after on the first calibration samples."""
    calibration: Any = None
    """Batches of the calibration inputs, for the ranges of integers."""

    def __repr__(self) -> str:
        return f"{self.table()}\n{self.bytes:,} bytes, output error {self.error:.3g}"

    @property
    def bytes(self) -> int:
        """The size of the file."""
        return self.card["achieved"]["bytes"]

    @property
    def error(self) -> float:
        """Σ ‖y − ŷ‖² / Σ ‖y − ȳ‖² of the outputs on the calibration data."""
        return self.card["achieved"]["output_error"]

    @property
    def file_card(self) -> dict[str, Any] | None:
        """What the file itself says; all of the card is beside it."""
        return said(self.card) or None

    def table(self) -> str:
        """Layer by layer: shape, bits, zeros, error, sensitivity, or why it stays."""
        head = ("layer", "shape", "bits", "zeros", "error", "sensitivity", "")
        lines = [head, *(line(row) for row in self.rows)]
        widths = [max(len(cells[k]) for cells in lines) for k in range(len(head))]
        return "\n".join(
            "  ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)).rstrip() for cells in lines
        )

    def save(self, path: str | os.PathLike[str]) -> int:
        """Write the packed file; its size in bytes."""
        from torchlift.deploy import save

        return save(self, path)

    def export(self, path: str | os.PathLike[str], **options: Any) -> Path:
        """Write an ONNX file or a torch program, by the path's ending; options are those of
        :func:`torchlift.deploy.export`. ``integer=True`` takes its ranges from the calibration data, and the
        card says under ``"integer"`` how fast the file is."""
        from torchlift.deploy import export

        if options.get("integer"):
            options.setdefault("calibration", self.calibration)
        exported = export(self.model, self.example, path, **options)
        if exported.card:
            self.card["integer"] = exported.card
        return Path(path)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write a page: where the bytes went, the error of each layer, outputs before and after."""
        from torchlift.compress.page import page
        from torchlift.report.html import write

        return write(page(self), path)

    def __str__(self) -> str:
        achieved = self.card["achieved"]
        return f"{self.table()}\n{achieved['bytes']:,} bytes, output error {achieved['output_error']:.2g}"


def said(card: Mapping[str, Any]) -> dict[str, Any]:
    """What the file itself says of its inputs and outputs, for ``predict``."""
    return {key: card[key] for key in ("input", "output") if key in card}


def line(row: LayerRow) -> tuple[str, ...]:
    """A row's cells as text."""
    shape = "×".join(map(str, row.shape))
    if row.shape != row.before:
        shape += f" of {'×'.join(map(str, row.before))}"
    numbers = ("" if value is None else f"{value:.2g}" for value in (row.error, row.sensitivity))
    bits, zeros = "" if row.bits is None else str(row.bits), f"{row.zeros:.0%}" if row.zeros else ""
    return (row.layer, shape, bits, zeros, *numbers, row.why)
