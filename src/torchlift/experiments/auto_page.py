"""The page of a search: the choice and why, the front, every trial, and what was dropped."""

from collections.abc import Sequence
from typing import Any

from torchlift import report
from torchlift.report.story.rows import PageData


def auto_page(search: PageData) -> report.Page:
    """One search."""
    chosen, plain = search["chosen"], search.get("plain")
    rows = [row for row in search["rows"] if not row["reason"] and row["rung"] >= 0]
    sections = [
        report.Section(
            "Choice", [report.Note(choice_in_words(search), "finding", chosen["key"]), cards(chosen, plain)]
        ),
        report.Section(
            "Front",
            [
                front_scatter(rows, search),
                delivered_table(
                    search["front"],
                    search,
                    "Delivered models that no other beats in metric, file and operations at once. The trials "
                    "that the winner was trained on from are left out.",
                ),
            ],
        ),
        report.Section("Stages", stages(chosen)),
        report.Section(
            "Trials", [delivered_table(rows, search, "Delivered models in the order of their trials.")]
        ),
        report.Section("Dropped", dropped_rows(search)),
    ]
    spent = f"{search['spent']:.3g} of {search['budget']:.3g} {search['unit']}"
    facts = (
        f"constraints: {search['constraints']}",
        spent,
        f"{len(search['rows'])} trials",
        f"seed {search['seed']}",
    )
    return report.Page(
        str(search["title"]), " · ".join(facts), [section for section in sections if section.blocks]
    )


def choice_in_words(search: PageData) -> str:
    """The choice in words, compared with plain training."""
    chosen, plain, trial = search["chosen"], search.get("plain"), search.get("trial")
    if plain is None or trial is None or chosen["name"] == plain["name"]:
        return str(search["why"])
    smaller, faster = plain["bytes"] / chosen["bytes"], plain["latency_ms"] / chosen["latency_ms"]
    verdict = (
        f"Against plain training ({plain['key']}): file {times_in_words(smaller, 'smaller', 'larger')}, "
        f"latency {times_in_words(faster, 'faster', 'slower')}. Its trial of {trial['cost']:.3g} plain "
        f"epochs had a validation metric of {trial['metric']:.3g}, plain training of {plain['cost']:.3g} had "
        f"{plain['metric']:.3g}."
    )
    return f"{search['why']}\n\n{verdict}"


def times_in_words(factor: float, better: str, worse: str) -> str:
    """How many times, in words."""
    return f"{factor:.3g}× {better}" if factor >= 1 else f"{1 / factor:.3g}× {worse}"


def cards(chosen: PageData, plain: PageData | None) -> report.Cards:
    """The choice's numbers; sizes and times beside plain's."""
    other = plain or {}
    return report.Cards(
        [
            report.Card("validation metric", chosen["metric"]),
            *([] if chosen.get("test") is None else [report.Card("test metric", chosen["test"])]),
            report.Card("packed file", chosen["bytes"], "bytes", other=other.get("bytes"), better="lower"),
            report.Card("multiply–adds", chosen["macs"], "count", other=other.get("macs"), better="lower"),
            report.Card("latency", chosen["latency_ms"], "ms", other=other.get("latency_ms"), better="lower"),
            report.Card("parameters", chosen["params"], "count", other=other.get("params"), better="lower"),
        ]
    )


def front_scatter(rows: Sequence[PageData], search: PageData) -> report.Scatter:
    """Metric against file: all trials, the front, the choice."""
    keys = {row["key"] for row in search["front"]}
    groups = {
        "other trials": [r for r in rows if r["key"] not in keys],
        "front": [r for r in rows if r["key"] in keys and r["key"] != search["chosen"]["key"]],
        "choice": [search["chosen"]],
    }
    points = [
        report.Points(
            name,
            [r["bytes"] / 1000 for r in some],
            [r["metric"] for r in some],
            labels=[r["key"] for r in some],
        )
        for name, some in groups.items()
        if some
    ]
    sizes = [row["bytes"] for row in rows]
    log = max(sizes) / min(sizes) > 8
    return report.Scatter(points, "Metric against size", "packed file (kB)", "validation metric", log_x=log)


def delivered_table(rows: Sequence[PageData], search: PageData, caption: str) -> report.Table:
    """Delivered models."""
    best: Any = "high" if search["higher_is_better"] else "low"
    columns = [
        report.Column("model", align="left"),
        report.Column("valid metric", best=best),
        report.Column("test metric"),
        report.Column("file", "bytes", best="low"),
        report.Column("multiply–adds", "count", best="low"),
        report.Column("latency", "ms"),
        report.Column("cost\n(plain\N{NO-BREAK SPACE}epochs)"),
        report.Column("time", "seconds"),
    ]
    names = ("metric", "test", "bytes", "macs", "latency_ms", "cost", "seconds")
    mark = {search["chosen"]["key"]: "▸ "}
    cells = [[mark.get(row["key"], "") + row["key"], *(row[name] for name in names)] for row in rows]
    return report.Table(columns, cells, f"{caption} ▸: the choice.")


def stages(chosen: PageData) -> list[Any]:
    """What each stage of a chain cost and did."""
    rows = list(chosen.get("stages") or [])
    return [report.stage_table(rows)] if rows else []


def dropped_rows(search: PageData) -> list[Any]:
    """Candidates without a model."""
    columns = [report.Column("candidate", align="left"), report.Column("reason", align="left")]
    rows = [[name, reason] for name, reason in search["dropped"].items()]
    return [report.Table(columns, rows)] if rows else []
