"""What was given and what is delivered, side by side: accuracy with its interval, and layers as a picture."""

from typing import Any

from torchlift.report.figures import Bars
from torchlift.report.numbers import wilson
from torchlift.report.page import CellValue, Column, PageBlock, Spread, Table
from torchlift.report.story.rows import PageData, finite_or_nan


def score_table(summary: PageData, metric: str) -> list[PageBlock]:
    """The metric of the given model, of the one before its layers were cut, and of the delivered one."""
    results, initial = dict(summary.get("results") or {}), dict(summary.get("given") or {})
    if not initial:
        return []
    counts, uncut = dict(summary.get("counts") or {}), summary.get("uncut")
    rows: list[tuple[CellValue, ...]] = [
        (
            split,
            initial.get(split),
            uncut if split == "valid" else None,
            scored(value, metric, counts.get(split)),
        )
        for split, value in results.items()
    ]
    columns = [Column(f"{metric} on", align="left"), Column("your model"), Column("trained, before the cut"),
               Column("delivered")]  # fmt: skip
    kept = [k for k in range(len(columns)) if k != 2 or uncut is not None]
    sure = any(isinstance(row[-1], Spread) for row in rows)
    caption = "In brackets the 95 % interval of a share of so many samples (Wilson)." if sure else ""
    return [Table([columns[k] for k in kept], [[row[k] for k in kept] for row in rows], caption)]


def scored(value: Any, metric: str, samples: int | None) -> CellValue:
    """A share of samples with its interval; any other metric as it is."""
    share = finite_or_nan(value)
    if metric != "accuracy" or not samples or not 0 <= share <= 1:
        return value
    low, high = wilson(share, samples)
    return Spread(share, low=low, high=high)


def width_bars(summary: PageData) -> list[PageBlock]:
    """The outputs of every layer, given and delivered, where some were cut."""
    widths = [(str(name), int(old), int(new)) for name, old, new in summary.get("widths") or []]
    if all(old == new for _, old, new in widths):
        return []
    series = {"given": [old for _, old, _ in widths], "delivered": [new for _, _, new in widths]}
    caption = "Outputs (channels, units) of every layer; one with none is gone."
    return [Bars([name for name, _, _ in widths], series, "count", "Layers before and after", caption)]
