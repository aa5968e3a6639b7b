"""The scores of a comparison: means over seeds, paired differences, and what they allow one to say."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Literal

from torchlift.report.numbers import interval
from torchlift.report.page import CellValue, Column, Note, PageBlock, Spread, Table
from torchlift.report.story.rows import PageData, finite_or_nan

Best = Literal["high", "low", ""]


def verdict(results: PageData, spent: str) -> list[PageBlock]:
    """One line per recipe: better, worse, or no clear difference, read off the paired interval."""
    paired: dict[str, PageData] = results.get("paired") or {}
    higher, plain = bool(results.get("higher_is_better", True)), results.get("plain", "plain")
    lines = [
        line for name, one in paired.items() if name != plain and (line := _judge(name, one, results, higher))
    ]
    if not lines:
        return []
    metric = f"{results.get('metric', 'metric')} ({'higher' if higher else 'lower'} is better)"
    opening = f"Test {metric} compared with *{plain}*" + (
        f" at {spent} each, paired by seed:" if spent else ", paired by seed:"
    )
    return [
        Note("\n\n".join([opening, "\n".join(f"- {line}" for line in lines)]), "finding", "What paid off")
    ]


def _judge(name: str, one: PageData, results: PageData, higher: bool) -> str:
    mean, low, high = (finite_or_nan(one.get(key)) for key in ("mean", "low", "high"))
    if math.isnan(mean):
        return ""
    clear = low > 0 or high < 0
    word = "no clear difference" if not clear else "better" if mean > 0 else "worse"
    seeds = len(results.get("seeds") or [])
    won = f", better on {one['wins']} of {seeds} seeds" if one.get("wins") is not None and seeds else ""
    tied = f" ({one['ties']} tied)" if won and one.get("ties") else ""
    text = interval(mean, low, high, signed=True)
    return f"**{name}**: {word}, {text}{won}{tied}{_lighter(name, results)}"


def _lighter(name: str, results: PageData) -> str:
    """By how much a recipe's file and latency differ from the control's, where that is worth a word."""
    recipes: dict[str, PageData] = results.get("recipes") or {}
    mine, plain = recipes.get(name) or {}, recipes.get(str(results.get("plain", "plain"))) or {}
    said = ""
    for key, less, more in (("bytes", "smaller", "larger"), ("latency_ms", "faster", "slower")):
        own, other = finite_or_nan(mine.get(key)), finite_or_nan(plain.get(key))
        if own > 0 and other > 0 and max(own / other, other / own) >= WORTH:
            what = "file" if key == "bytes" else "call"
            said += f"; {what} {max(own / other, other / own):.2g}× {less if own < other else more}"
    return said


WORTH = 1.2
"""The least ratio of files or latencies that the verdict speaks of."""


def _starred(results: PageData, recipes: dict[str, PageData], best: Best) -> Best:
    """Which way the test column is starred: no way, where the best is not clearly better than the control."""
    means = {name: spread.mean for name, one in recipes.items() if (spread := spread_of(one.get("test")))}
    paired: dict[str, PageData] = results.get("paired") or {}
    if not means:
        return ""
    leader = (max if best == "high" else min)(means, key=lambda name: means[name])
    rivals = [leader] if leader in paired else [name for name in means if name in paired]
    clear = (
        finite_or_nan(paired[name].get("low")) > 0 or finite_or_nan(paired[name].get("high")) < 0
        for name in rivals
    )
    return best if all(clear) else ""


def result_table(results: PageData, recipes: dict[str, PageData]) -> list[PageBlock]:
    """Mean ± sd over seeds, the paired difference to plain, cost and size."""
    metric = str(results.get("metric", "metric"))
    best: Best = "high" if results.get("higher_is_better", True) else "low"
    paired: dict[str, PageData] = results.get("paired") or {}
    plain = str(results.get("plain", "plain"))
    columns: list[tuple[Column, list[CellValue]]] = [
        (
            Column(f"test {metric}", best=_starred(results, recipes, best)),
            [spread_of(one.get("test")) for one in recipes.values()],
        ),
        (Column(f"difference\nto {plain}"), [_difference(paired.get(name)) for name in recipes]),
        (
            Column("cost\n(plain\N{NO-BREAK SPACE}epochs)"),
            [mean_of(one.get("cost")) for one in recipes.values()],
        ),
        (Column("time", "seconds"), [mean_of(one.get("seconds")) for one in recipes.values()]),
        (Column("parameters", "count", best="low"), [one.get("params") for one in recipes.values()]),
        (Column("file", "bytes", best="low"), [one.get("bytes") for one in recipes.values()]),
        (Column("latency", "ms"), [one.get("latency_ms") for one in recipes.values()]),
        (Column("settings", align="left"), _is_decided(recipes)),
    ]
    filled = [(head, cells) for head, cells in columns if any(cell is not None for cell in cells)]
    if not recipes or not filled:
        return []
    heads = [Column("recipe", align="left"), *(_unless_tied(head, cells) for head, cells in filled)]
    rows = list(zip(recipes, *(cells for _, cells in filled), strict=True))
    caption = "Mean ± standard deviation over seeds; differences are paired by seed, with their interval."
    return [Table(heads, rows, caption)]


def _is_decided(recipes: dict[str, PageData]) -> list[CellValue]:
    """What tuning gave each recipe; nothing where none was tuned, which the remarks say."""
    tuned = [one.get("tuned") for one in recipes.values()]
    return tuned if any(value not in (None, "untuned") for value in tuned) else [None] * len(tuned)


def _unless_tied(column: Column, cells: Sequence[CellValue]) -> Column:
    """No star where all are equal."""
    return column if len(set(cells)) > 1 else Column(column.name, column.form, column.align)


def spread_of(values: object) -> Spread | None:
    """Mean and standard deviation of the seeds that gave a number."""
    finite = (
        [value for value in map(finite_or_nan, values) if math.isfinite(value)]
        if isinstance(values, list | tuple)
        else []
    )
    return Spread(fmean(finite), stdev(finite) if len(finite) > 1 else None) if finite else None


def _difference(paired: PageData | None) -> Spread | None:
    if not paired or math.isnan(finite_or_nan(paired.get("mean"))):
        return None
    low, high = finite_or_nan(paired.get("low")), finite_or_nan(paired.get("high"))
    return Spread(finite_or_nan(paired["mean"]), low=low, high=high, signed=True)


def mean_of(values: object) -> float | None:
    """The mean of the seeds that gave a number."""
    spread = spread_of(values)
    return spread.mean if spread else None
