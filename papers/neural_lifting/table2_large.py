"""Neural lifting, Table 2 with its large model, ResNet-20: hours on a few cores."""

from pathlib import Path

from papers.common.arms import Row
from papers.neural_lifting import table2


def run(out: Path, data: str | None = None, seeds: int | None = None, scale: float | None = None) -> Row:
    """The arms of ``table2`` and ResNet-20 for as many of its own epochs."""
    return table2.run(out, data, seeds, scale, large=True)
