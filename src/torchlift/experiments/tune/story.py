"""The page of a search: the best point, every trial, and the metric along each parameter."""

from collections.abc import Mapping
from typing import Any

from torchlift import report

Data = Mapping[str, Any]


def tuning_page(found: Data) -> report.Page:
    """One search."""
    trials: list[Data] = list(found.get("trials") or [])
    done = [trial for trial in trials if trial.get("state") == "complete"]
    metric, better = (
        str(found.get("metric", "metric")),
        "high" if found.get("higher_is_better", True) else "low",
    )
    names = list(dict.fromkeys(name for trial in trials for name in trial["params"]))
    sections = [
        report.Section(
            "Best", [report.Cards([report.Card(f"valid {metric}", found.get("value"))]), best(found)]
        ),
        report.Section(
            "Along each parameter",
            [scatter(done, name, metric, is_log(found, name)) for name in names if numeric(done, name)],
        ),
        report.Section("Trials", [table(trials, names, metric, better)]),
        report.Section("Settings", [report.KeyValues(found.get("about") or {})]),
    ]
    subtitle = f"{len(done)} of {len(trials)} trials complete"
    return report.Page("Search", subtitle, [section for section in sections if section.blocks])


def best(found: Data) -> report.KeyValues:
    """The best values."""
    return report.KeyValues(found.get("values") or found.get("best") or {})


def table(trials: list[Data], names: list[str], metric: str, better: Any) -> report.Table:
    """All trials."""
    columns = [
        report.Column("trial"),
        report.Column("state", align="left"),
        report.Column(f"valid {metric}", best=better),
        *(report.Column(name) for name in names),
        report.Column("time", "seconds"),
    ]
    rows = [
        [
            str(trial["number"]),
            str(trial["state"]),
            trial["value"],
            *(cell(trial["params"].get(name)) for name in names),
            trial["seconds"],
        ]
        for trial in trials
    ]
    return report.Table(columns, rows, "Pruned trials show the metric they were stopped at.")


def cell(value: Any) -> str | float | None:
    """A number as it is, anything else in words."""
    return (
        value
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool))
        else str(value)
    )


def numeric(trials: list[Data], name: str) -> bool:
    """Whether a parameter can be an axis."""
    values = [trial["params"].get(name) for trial in trials]
    return len(trials) > 1 and all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def is_log(found: Data, name: str) -> bool | None:
    """Whether a parameter was searched on a logarithmic scale; None where the space does not say."""
    said = (found.get("about") or {}).get(f"space.{name}.fields.log")
    return None if said is None else bool(said)


def scatter(trials: list[Data], name: str, metric: str, searched: bool | None = None) -> report.Scatter:
    """The metric along one parameter, on the scale it was searched on."""
    x, y = [trial["params"][name] for trial in trials], [trial["value"] for trial in trials]
    labels = [f"trial {trial['number']}" for trial in trials]
    log = min(x) > 0 and (max(x) / min(x) > 20 if searched is None else searched)
    return report.Scatter(
        [report.Points(name, x, y, labels=labels)], name, name, f"valid {metric}", log_x=log
    )
