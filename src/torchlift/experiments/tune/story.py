"""The page of a search: the best point, every trial, and the metric along each parameter."""

from typing import Any

from torchlift import report
from torchlift.report.story.rows import PageData

HIDDEN = ("none", "import", "class", "call", "opaque", "digest", "code", "progress")
"""Last parts of names in a record that are for machines."""
OPTIONS = "optimizer.options."


def tuning_page(search: PageData) -> report.Page:
    """One search."""
    trials: list[PageData] = list(search.get("trials") or [])
    done = [trial for trial in trials if trial.get("state") == "complete"]
    metric, better = (
        str(search.get("metric", "metric")),
        "high" if search.get("higher_is_better", True) else "low",
    )
    names = list(dict.fromkeys(name for trial in trials for name in trial["params"]))
    sections = [
        report.Section(
            "Best",
            [report.Cards([report.Card(f"valid {metric}", search.get("value"))]), best_settings(search)],
        ),
        report.Section(
            "Along each parameter",
            [scatter(done, name, metric, is_log(search, name)) for name in names if numeric(done, name)],
        ),
        report.Section("Trials", [trials_table(trials, names, metric, better)]),
        report.Section("Settings", [report.KeyValues(search_settings(search.get("about") or {}))]),
    ]
    subtitle = f"{len(done)} of {len(trials)} trials complete"
    return report.Page(
        search_title(search.get("about") or {}), subtitle, [section for section in sections if section.blocks]
    )


def best_settings(search: PageData) -> report.KeyValues:
    """What was drawn, at its best; what was fixed stands among the settings."""
    return report.KeyValues(search.get("best") or {})


def search_title(about: PageData) -> str:
    """What was searched, in words."""
    recipe = name_in(about.get("recipe.import", ""))
    return f"{recipe}: search for the best settings" if recipe else "Search for the best settings"


def search_settings(about: PageData) -> dict[str, Any]:
    """What was searched and how, in words: no module paths, no digests of models and data."""
    fixed = {key: value for key, value in about.items() if key.split(".")[0] in ("fixed", "settings")}
    plain = {key: value for key, value in fixed.items() if key.split(".")[-1] not in HIDDEN}
    searched = {name.removeprefix("opt.") for name in spans(about)}
    options = {key.rpartition(".")[2]: value for key, value in about.items() if key.startswith(OPTIONS)}
    options = {name: value for name, value in options.items() if name not in searched}
    chosen = {
        "recipe": name_in(about.get("recipe.import", "")),
        **{f"searched: {name}": span for name, span in spans(about).items()},
        "optimizer": name_in(about.get("optimizer.call.import", about.get("optimizer.import", ""))),
        **{f"optimizer, {name}": value for name, value in options.items()},
        "method": {"tpe": "Optuna (TPE)", "lines": "one axis after the other"}.get(
            str(about.get("method")), ""
        ),
        "folds": about.get("folds") or "",
        "seed": about.get("seed", ""),
        **{key.partition(".")[2]: value for key, value in plain.items()},
    }
    return {key: value for key, value in chosen.items() if value not in ("", None)}


def spans(about: PageData) -> dict[str, str]:
    """Where each parameter was searched: from … to, or one of."""
    names = dict.fromkeys(
        key.split(".fields.")[0] for key in about if key.startswith("space.") and ".fields." in key
    )
    return {name.removeprefix("space."): span(about, f"{name}.fields.") for name in names}


def span(about: PageData, prefix: str) -> str:
    """One range or choice."""
    if f"{prefix}values" in about:
        return ", ".join(map(str, about[f"{prefix}values"]))
    ends = f"{about.get(f'{prefix}low')} to {about.get(f'{prefix}high')}"
    return f"{ends}, logarithmic" if about.get(f"{prefix}log") else ends


def name_in(path: object) -> str:
    """package.module:Name → Name."""
    return str(path).rpartition(":")[2].rpartition(".")[2]


def trials_table(trials: list[PageData], names: list[str], metric: str, better: Any) -> report.Table:
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
            *(trial_cell(trial["params"].get(name)) for name in names),
            trial["seconds"],
        ]
        for trial in trials
    ]
    return report.Table(columns, rows, "Pruned trials show the metric they were stopped at.")


def trial_cell(value: Any) -> str | float | None:
    """A number as it is, anything else in words."""
    return (
        value
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool))
        else str(value)
    )


def numeric(trials: list[PageData], name: str) -> bool:
    """Whether a parameter can be an axis."""
    values = [trial["params"].get(name) for trial in trials]
    return len(trials) > 1 and all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def is_log(search: PageData, name: str) -> bool | None:
    """Whether a parameter was searched on a logarithmic scale; None where the space does not say."""
    said = (search.get("about") or {}).get(f"space.{name}.fields.log")
    return None if said is None else bool(said)


def scatter(trials: list[PageData], name: str, metric: str, searched: bool | None = None) -> report.Scatter:
    """The metric along one parameter, on the scale it was searched on."""
    x, y = [trial["params"][name] for trial in trials], [trial["value"] for trial in trials]
    labels = [f"trial {trial['number']}" for trial in trials]
    log = min(x) > 0 and (max(x) / min(x) > 20 if searched is None else searched)
    return report.Scatter(
        [report.Points(name, x, y, labels=labels)], name, name, f"valid {metric}", log_x=log
    )
