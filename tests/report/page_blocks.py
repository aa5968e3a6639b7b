"""What the page of a run shows."""

from collections.abc import Mapping, Sequence
from typing import Any

from torchlift import report


def shown(title: str, history: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> list[Any]:
    """The blocks of one section; none where the page has no such section."""
    page = report.run_page(history, summary)
    return [block for section in page.sections if section.title == title for block in section.blocks]


def row(phase: str, epoch: int, **more: object) -> dict[str, Any]:
    """A row of a history."""
    return {"fit": phase, "phase": phase, "epoch": epoch, "cost": float(epoch), **more}
