"""``torchlift reproduce``: a paper's result, measured here."""

import ast
import json as json_format
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

import torchlift
from torchlift.cli.flags import Debug, Json
from torchlift.cli.output import lines, note, plain, show
from torchlift.cli.pairs import unknown

EXAMPLE = """Examples:

    torchlift reproduce                                    # what there is
    torchlift reproduce table3 --seeds 3 --out runs/table3
    torchlift reproduce table2 --data ~/data --scale 0.5"""


def reproduce(
    name: Annotated[str | None, Parameter(help="The result to measure; without it all are listed.")] = None,
    *,
    data: Annotated[str | None, Parameter(help="The folder with the data (default: TORCHLIFT_DATA).")] = None,
    out: Annotated[Path, Parameter(help="Where NAME.json and NAME.html go.")] = Path("runs/reproduce"),
    seeds: Annotated[int | None, Parameter(help="How many seeds (default: the entry's own).")] = None,
    scale: Annotated[
        float | None,
        Parameter(help="1 is the paper's scale (default: what ends on 2 cores within the hour)."),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure a paper's result: its number beside ours, several seeds, with controls at equal cost."""
    del debug
    known = entries()
    if name is None:
        show(json, {"entries": known}, lines(known) if known else "no entries in this installation")
        return
    if name not in known:
        raise unknown("reproduce: entry", name, known)
    if seeds is not None and seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {seeds}")
    run_entry(name, {"data": data, "seeds": seeds, "scale": scale}, out, json)


def entries() -> dict[str, str]:
    """The entries and the first lines of their docstrings, read without importing them."""
    folder = Path(torchlift.__file__).parent / "bench" / "reproduce"
    files = sorted(path for path in folder.glob("*.py") if not path.name.startswith("_"))
    trees = {path.stem.replace("_", "-"): ast.parse(path.read_text()) for path in files}
    runnable = {name: tree for name, tree in trees.items() if has_run(tree)}
    return {name: (ast.get_docstring(tree) or "").split("\n")[0] for name, tree in runnable.items()}


def has_run(tree: ast.Module) -> bool:
    """Whether a file is an entry: it defines ``run``."""
    return any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body)


def run_entry(name: str, chosen: dict[str, object], out: Path, json: bool) -> None:
    """Run an entry with what was chosen; write its result and its page."""
    import importlib

    from torchlift import report
    from torchlift.train.checkpoint import write

    module = importlib.import_module(f"torchlift.bench.reproduce.{name.replace('-', '_')}")
    given = {key: value for key, value in chosen.items() if value is not None}
    result = plain(module.run(out=out, **given))
    record, page = out / f"{name}.json", out / f"{name}.html"
    write(record, json_format.dumps(result, indent=1, ensure_ascii=False).encode())
    try:
        report.write(report.reproduction_page(result), page)
    except ImportError as error:
        note(f"torchlift: no page: {error}; pip install 'torchlift[report]'")
    finding = str(result.get("finding") or result.get("title") or name)
    show(json, result | {"json": record, "page": page}, f"{finding}\n\n{record}\n{page}")


VERBS = [(reproduce, "reproduce", EXAMPLE)]
