"""``report.html`` from what a folder holds."""

import json
from pathlib import Path
from typing import Any

from torchlift import report
from torchlift.cli.output import print_note
from torchlift.train.history import read_history
from torchlift.train.run.record import flat, read_record

KINDS = ("auto.json", "comparison.json", "tuning.json", "result.json", "run.toml")


def rebuild(folder: Path) -> Path:
    """Write ``report.html`` again from the folder of a run, finished or not, a comparison or a search."""
    kind = next((name for name in KINDS if (folder / name).is_file()), None)
    if kind is None:
        raise ValueError(f"{folder} holds no run, comparison or search (none of {', '.join(KINDS)})")
    return report.write(page_of_folder(folder, kind), folder / "report.html")


def page_of_folder(folder: Path, kind: str) -> report.Page:
    """The page that tells the folder's story."""
    if kind == "auto.json":
        from torchlift.experiments import auto_page

        return auto_page(read_json(folder / kind))
    if kind == "comparison.json":
        return report.comparison_page(read_json(folder / kind))
    if kind == "tuning.json":
        from torchlift.experiments.tune import tuning_page

        return tuning_page(read_json(folder / kind))
    history = folder / "history.jsonl"
    rows = read_history(history) if history.is_file() else []
    if kind == "result.json":
        return report.run_page(rows, read_json(folder / kind))
    settings = flat(read_record(folder) or {})
    name = str(settings.get("recipe.class", settings.get("kind"))).rpartition(":")[2]
    return report.run_page(rows, {"title": f"{name}, not finished", "settings": settings})


def write_file_page(path: Path) -> Path:
    """A page of what a packed file takes, gives and weighs."""
    from torchlift.deploy.predicting import load_card

    said = {name: value for name, value in load_card(path).items() if value not in (None, {}, "")}
    figures = {name: said.pop(name) for name in list(said) if not isinstance(said[name], dict)}
    titles = {
        "input": "What goes in", "output": "What comes out", "scores": "How good it is", "targets": "Targets",
        "before": "Before", "achieved": "Delivered", "size": "Size", "from": "Where it comes from",
    }  # fmt: skip
    sections = [
        report.Section(titles.get(name, name), [report.KeyValues(value)]) for name, value in said.items()
    ]
    first = report.Section("The file", [report.KeyValues({"bytes": path.stat().st_size} | figures)])
    return report.write(report.Page(path.name, "", [first, *sections]), path.with_suffix(".html"))


def read_json(path: Path) -> dict[str, Any]:
    """A file of ours; a damaged one is a one-line error."""
    try:
        return json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged ({error}): run again to write it") from error


def try_rebuild(folder: Path) -> Path | None:
    """The report at the end of a run: without the extra that draws it, the run counts all the same."""
    try:
        return rebuild(folder)
    except ImportError as error:
        print_note(
            f"torchlift: no report: {error}; pip install 'torchlift[report]', then: torchlift report {folder}"
        )
        return None
