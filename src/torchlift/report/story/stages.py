"""The stages of a chain: what each cost, and what the network was after it."""

from collections.abc import Sequence

from torchlift.report.page import CellValue, Column, Table
from torchlift.report.story.rows import PageData, finite_or_nan

COLUMNS = (
    Column("stage", align="left"),
    Column("cost\n(plain\N{NO-BREAK SPACE}epochs)"),
    Column("time", "seconds"),
    Column("metric after"),
    Column("change"),
    Column("non-zero\nparameters", "count"),
    Column("file", "bytes"),
)


def stage_table(stages: Sequence[PageData]) -> Table:
    """A row per stage: its own cost, and metric, parameters and packed file when it was done."""
    rows: list[list[CellValue]] = []
    cost = seconds = 0.0
    metric: float | None = None
    for stage in stages:
        spent, took, now = (
            finite_or_nan(stage["cost"]),
            finite_or_nan(stage["seconds"]),
            finite_or_nan(stage["metric"]),
        )
        change = None if metric is None else now - metric
        sizes: list[CellValue] = [stage.get("parameters"), stage.get("file_bytes")]
        rows.append([str(stage["stage"]), spent - cost, took - seconds, now, change, *sizes])
        cost, seconds, metric = spent, took, now
    return Table(COLUMNS, rows, "Metric on validation data (training data, where there are none).")
