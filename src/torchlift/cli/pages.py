"""``report.html`` from what a folder holds."""

import json
from pathlib import Path
from typing import Any

from torchlift import report
from torchlift.cli.flags import ModelFlags
from torchlift.cli.output import print_note
from torchlift.train.history import read_history
from torchlift.train.run.record import flat, read_record

KINDS = ("auto.json", "comparison.json", "tuning.json", "result.json", "run.toml")


def rebuild(folder: Path, to: Path | None = None) -> Path:
    """Write ``report.html`` again from the folder of a run, finished or not, a comparison or a search."""
    kind = next((name for name in KINDS if (folder / name).is_file()), None)
    if kind is None:
        raise ValueError(f"{folder} holds no run, comparison or search (none of {', '.join(KINDS)})")
    return report.write(page_of_folder(folder, kind), to or folder / "report.html")


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


def write_model_page(flags: ModelFlags, path: Path | None, to: Path | None) -> Path:
    """A page of a packed file, or of a model with its weights: what it takes, gives and weighs."""
    from torchlift.cli.model_page import model_page
    from torchlift.cli.weights import open_model

    if path is not None:
        return report.write(file_page(flags, path), to or path.with_suffix(".html"))
    model, example = open_model(flags)
    weights = Path(flags.weights) if flags.weights else None
    if to is None and weights is None:
        raise ValueError("no file to name the page after: pass --to page.html")
    name = flags.model.rpartition(":")[2] if flags.model else str(weights)
    return report.write(model_page(name, {}, model, example), to or Path(str(weights)).with_suffix(".html"))


def file_page(flags: ModelFlags, path: Path) -> report.Page:
    """The page of a packed file; without ``--model`` one that holds weights alone shows its card."""
    from torchlift.cli.model_page import model_page
    from torchlift.cli.weights import WeightsAlone, example_by, open_run_model, parse_example
    from torchlift.deploy.predicting import load_card
    from torchlift.packed.file import card_path

    card, beside = load_card(path), card_path(path)
    if beside.is_file():
        card = read_json(beside) | card
    try:
        model = open_run_model(flags, str(path), card).eval()
    except WeightsAlone:
        model = None
    example = None
    if flags.example:
        example = parse_example(flags.example)
    elif card.get("input", {}).keys() & {"columns", "shape"}:
        example = example_by(card, str(path))
    return model_page(path.name, card, model, example, path.stat().st_size)


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
