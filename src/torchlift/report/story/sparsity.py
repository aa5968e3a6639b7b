"""What pruning did: target and achieved, by layer, accuracy against sparsity, tickets round by round."""

import math
import re

from torchlift.report.figures import Bars, Scatter
from torchlift.report.numbers import Format
from torchlift.report.page import CellValue, Column, PageBlock, Table
from torchlift.report.story.rows import PageData, Rows, finite_or_nan, metric_against, rows_by_fit, sentence

FORMS: dict[str, Format] = {"bytes": "bytes", "macs": "count", "parameters": "count"}
ROUND = re.compile(r"round \d+|ticket")


def sparsity_blocks(history: Rows, summary: PageData, metric: str) -> list[PageBlock]:
    """All there is to tell of a pruning; nothing for a run that pruned nothing."""
    return [
        *target_and_achieved(history),
        *layer_bars(summary),
        *sparsity_trade_off(history, metric),
        *tickets(history, metric),
    ]


def target_and_achieved(history: Rows) -> list[PageBlock]:
    """A table per target: what the last row has of it."""
    names = dict.fromkeys(
        key.removesuffix("_target") for row in history for key in row if key.endswith("_target")
    )
    return [table for name in names if (table := _target(history, name)) is not None]


def _target(history: Rows, name: str) -> Table | None:
    target, achieved = last(history, f"{name}_target"), last(history, name)
    if target is None or achieved is None:
        return None
    form = FORMS.get(name, "auto")
    points, share = 100 * (achieved - target), 100 * (achieved / target - 1)
    off = f"{points:+.2f} points" if name == "sparsity" else f"{share:+.2f} %"
    columns = [Column("", align="left"), Column("target", form), Column("achieved", form), Column("off by")]
    return Table(columns, [[sentence(name), target, achieved, off]], title="Target and achieved")


def last(rows: Rows, key: str) -> float | None:
    """The last finite value of a key."""
    values = [value for row in rows if math.isfinite(value := finite_or_nan(row.get(key)))]
    return values[-1] if values else None


def layer_bars(summary: PageData) -> list[PageBlock]:
    """The sparsity of every weight, in percent, where some weight has zeros."""
    layers = [one for one in summary.get("layers") or [] if one.get("entries")]
    if not any(one["zeros"] for one in layers):
        return []
    percent = [100 * one["zeros"] / one["entries"] for one in layers]
    caption = "Exact zeros in each weight, in percent."
    return [Bars([one["name"] for one in layers], {"sparsity": percent}, title="Layers", caption=caption)]


def sparsity_trade_off(history: Rows, metric: str) -> list[PageBlock]:
    """The metric against the sparsity, a point per epoch; of soft masks, the metric of the hard ones."""
    points = metric_against(history, "sparsity", 100)
    if not points:
        return []
    title = f"{sentence(metric)} against sparsity"
    caption = "A point per epoch; of soft gates the network they would leave, where that was measured."
    return [Scatter(points, title, "sparsity (%)", metric, caption=caption)]


def tickets(history: Rows, metric: str) -> list[PageBlock]:
    """A row per round of a ticket search, and the ticket."""
    rounds = [rows for rows in rows_by_fit(history) if ROUND.fullmatch(str(rows[0].get("phase", "")))]
    if not any(str(rows[0].get("phase", "")).startswith("round") for rows in rounds):
        return []
    columns = [
        Column("phase", align="left"),
        Column("weights left (%)"),
        Column(metric),
        Column("valid loss"),
        Column("cost at end"),
    ]
    return [
        Table(columns, [_round(rows) for rows in rounds], "At the end of each round.", "Tickets by round")
    ]


def _round(rows: Rows) -> list[CellValue]:
    closed = last(rows, "sparsity")
    left = None if closed is None else 100 * (1 - closed)
    values = (last(rows, key) for key in ("metric", "valid_loss", "cost"))
    return [str(rows[0].get("phase", "")), left, *values]
