"""The page of one run: what came out, what it cost, how it went, what was lifted."""

import math
from collections.abc import Iterable

from torchlift.report.figures import Chart, Line
from torchlift.report.numbers import Format
from torchlift.report.page import (
    Card,
    Cards,
    CellValue,
    Column,
    Details,
    KeyValues,
    Page,
    PageBlock,
    Paragraphs,
    Section,
    Table,
)
from torchlift.report.story.delivered import score_table, width_bars
from torchlift.report.story.depth import depth_blocks
from torchlift.report.story.lifting import CAPTION, CYCLES, cycle_rows
from torchlift.report.story.precision import precision_blocks
from torchlift.report.story.rows import (
    COST,
    PageData,
    Rows,
    column_of,
    curve,
    extras,
    phases,
    rows_by_fit,
    sentence,
    wants_log,
)
from torchlift.report.story.sharing import sharing_blocks
from torchlift.report.story.sparsity import sparsity_blocks
from torchlift.report.story.stages import stage_table

MODEL: dict[str, tuple[str, Format, str]] = {
    "params": ("parameters", "count", ""),
    "nonzero": ("non-zero parameters", "count", ""),
    "bits_each": ("bits per parameter", "auto", ""),
    "file_bytes": ("packed file", "bytes", ""),
    "bound_bytes": ("entropy bound", "bytes", ""),
    "macs": ("multiply–adds", "count", ""),
    "latency_ms": ("latency", "ms", ""),
}
ENERGY = "energy "
"""How the columns of lifted training begin: the name of a layer follows."""

PHASES = {
    "phase": Column("phase", align="left"),
    "cost": Column("cost at end\n(plain\N{NO-BREAK SPACE}epochs)"),
    "epoch": Column("epochs"),
    "train_loss": Column("train loss"),
    "valid_loss": Column("valid loss"),
    "metric": Column("metric"),
    "seconds": Column("time at end", "seconds"),
}
LIFTS = {
    "phase": Column("phase", align="left"),
    "what": Column("lift", align="left"),
    "where": Column("where", align="left"),
    "added_parameters": Column("added parameters", "count"),
    "projected": Column("way back", align="left"),
}


def run_page(history: Rows, summary: PageData) -> Page:
    """One run from its history rows and its summary; an unfinished run gives a page too."""
    titled = [
        ("recipe", summary.get("method", summary.get("recipe"))),
        ("metric", summary.get("metric")),
        ("seed", summary.get("seed")),
    ]
    subtitle = " · ".join(f"{key} {value}" for key, value in titled if value is not None)
    subtitle = " · ".join(text for text in (subtitle, str(summary.get("about") or "")) if text)
    metric, stages = str(summary.get("metric") or "metric"), list(summary.get("stages") or [])
    return Page(
        str(summary.get("title") or "Run"),
        subtitle,
        sections(
            ("Result", [*result_cards(summary, metric), *score_table(summary, metric)]),
            ("Given and delivered", [*model_cards(summary), *width_bars(summary)]),
            ("Curves", run_charts(history, metric)),
            ("Depth", depth_blocks(history)),
            ("Sparsity", sparsity_blocks(history, summary, metric)),
            ("Sharing", sharing_blocks(history, summary)),
            ("Precision", precision_blocks(history, summary, metric)),
            ("Stages", [stage_table(stages)] if stages else []),
            ("Phases", phase_table(history, metric)),
            ("Cycles", keyed_table(cycle_rows(history), CYCLES, CAPTION)),
            ("Lifted and projected", lift_table(summary)),
            ("Notes", notes(summary)),
            ("Settings", settings(summary)),
        ),
    )


def sections(*titled: tuple[str, Iterable[PageBlock]]) -> list[Section]:
    """The sections that have something to show."""
    return [Section(title, blocks) for title, section in titled if (blocks := list(section))]


def result_cards(summary: PageData, metric: str) -> list[PageBlock]:
    """Results first, then what they cost."""
    results, cost = summary.get("results") or {}, summary.get("cost") or {}
    cards = [Card(f"{split} {metric}", value) for split, value in results.items() if value is not None]
    kinds: dict[str, tuple[str, Format, str]] = {
        "epochs": ("cost", "auto", "plain epochs"),
        "flops": ("compute", "flops", ""),
        "seconds": ("time", "seconds", ""),
    }
    measured = [(kinds[key], cost[key]) for key in kinds if cost.get(key) is not None]
    cards += [Card(label, value, form, unit) for (label, form, unit), value in measured]
    return [Cards(cards)] if cards else []


def model_cards(summary: PageData) -> list[PageBlock]:
    """The model card: the model after the run, each figure with its change from before."""
    before, after = (per_parameter(summary.get(key) or {}) for key in ("before", "after"))
    figures = after or before
    cards = [
        Card(label, figures[key], form, unit, before.get(key) if after else None, "lower")
        for key, (label, form, unit) in MODEL.items()
        if figures.get(key) is not None
    ]
    return [Cards(cards)] if cards else []


def per_parameter(figures: PageData) -> PageData:
    """The figures of a model with the bits of one parameter, on average, beside those of all."""
    bits, params = figures.get("bits"), figures.get("params")
    return {**figures, "bits_each": bits / params} if bits is not None and params else {**figures}


def run_charts(history: Rows, metric: str) -> list[PageBlock]:
    """Losses, the metric, the learning rate and whatever else was logged, over cumulative cost."""
    losses = _present(curve(history, "train_loss", "train"), curve(history, "valid_loss", "validation"))
    charts = [_chart(history, "Loss", "loss", losses, wide=True)]
    charts += [_chart(history, sentence(metric), "", _present(curve(history, "metric", metric, 2)))]
    energies = [key for key in extras(history) if key.startswith(ENERGY)]
    layers = [curve(history, key, key.removeprefix(ENERGY)) for key in energies]
    charts += [_chart(history, "Energy of each layer", "per sample", _present(*layers))]
    others = [key for key in extras(history) if key not in energies]
    for number, key in enumerate([*others, "lr"]):
        title = "Learning rate" if key == "lr" else sentence(key)
        charts.append(
            _chart(history, title, "", _present(curve(history, key, title.lower(), 3 + number % 4)))
        )
    return [chart for chart in charts if chart.lines]


def _chart(history: Rows, title: str, label: str, lines: list[Line], *, wide: bool = False) -> Chart:
    shaded = phases(history)
    return Chart(lines, title, COST, label, shaded, log_y=wants_log(lines), wide=wide)


def _present(*lines: Line | None) -> list[Line]:
    return [line for line in lines if line is not None]


def phase_table(history: Rows, metric: str) -> list[PageBlock]:
    """Where each fit ended: the last value of every key it logged."""
    last = [{key: _last(rows, key) for key in PHASES} for rows in rows_by_fit(history)]
    return keyed_table(last, PHASES | {"metric": Column(metric)}, "The last value of each fit.")


def _last(rows: Rows, key: str) -> CellValue:
    if key == "phase":
        return str(rows[0].get(key, ""))
    finite = [value for value in column_of(rows, key) if math.isfinite(value)]
    return finite[-1] if finite else None


def lift_table(summary: PageData) -> list[PageBlock]:
    """What was lifted, where, by how many parameters, and how it came back."""
    rows = [{key: _plain(lift.get(key)) for key in LIFTS} for lift in summary.get("lifts") or []]
    return keyed_table(rows, LIFTS)


def _plain(value: object) -> CellValue:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, int | float) or value is None else str(value)


def keyed_table(
    rows: list[dict[str, CellValue]], columns: dict[str, Column], caption: str = ""
) -> list[PageBlock]:
    """A table of dictionaries without the columns nobody filled."""
    filled = [key for key in columns if any(row[key] not in (None, "") for row in rows)]
    if not filled:
        return []
    return [Table([columns[key] for key in filled], [[row[key] for key in filled] for row in rows], caption)]


def notes(summary: PageData) -> list[PageBlock]:
    """Notes as paragraphs."""
    texts = [str(note) for note in summary.get("notes") or []]
    return [Paragraphs("\n\n".join(texts))] if texts else []


def settings(summary: PageData, title: str = "All settings", key: str = "settings") -> list[PageBlock]:
    """Settings behind a click."""
    values = summary.get(key) or {}
    return [Details(title, [KeyValues(values)])] if values else []
