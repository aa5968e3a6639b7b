"""``torchlift reproduce``: a paper's result, measured here."""

import json as json_format
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from torchlift.cli.flags import JOBS, Debug, Json
from torchlift.cli.output import lines, note, plain, show
from torchlift.cli.pairs import unknown
from torchlift.cli.reproduction import Entry, find_entries

EXAMPLE = """Examples:

    torchlift reproduce                                    # what there is
    torchlift reproduce table3 --seeds 3 --out runs/table3
    torchlift reproduce table2 --data ~/data --scale 0.5
    torchlift reproduce my-table --papers ~/mine           # ~/mine/SOURCE/my_table.py: run()"""


def reproduce(
    name: Annotated[str | None, Parameter(help="The result to measure; without it all are listed.")] = None,
    *,
    papers: Annotated[
        Path | None,
        Parameter(help="The folder with the entries (default: papers/ here, else that of the checkout)."),
    ] = None,
    data: Annotated[str | None, Parameter(help="The folder with the data (default: TORCHLIFT_DATA).")] = None,
    out: Annotated[Path, Parameter(help="Where NAME.json and NAME.html go.")] = Path("runs/reproduce"),
    seeds: Annotated[int | None, Parameter(help="How many seeds (default: the entry's own).")] = None,
    scale: Annotated[
        float | None,
        Parameter(help="1 is the paper's scale (default: what ends on 2 cores within the hour)."),
    ] = None,
    jobs: JOBS = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure a paper's result: its number beside ours, several seeds, with controls at equal cost.

    --jobs shares the runs of an entry's arms and comparisons among processes.
    """
    del debug
    entries = find_entries(papers)
    if name is None:
        show(json, {"entries": {key: entry.title for key, entry in entries.items()}}, listed(entries))
        return
    if name not in entries:
        raise unknown("reproduce: entry", name, entries)
    if seeds is not None and seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {seeds}")
    from torchlift.experiments.executors import using

    with using("processes" if jobs == 0 else jobs):
        run_entry(entries[name], {"data": data, "seeds": seeds, "scale": scale}, out, json)


def listed(entries: Mapping[str, Entry]) -> str:
    """Names and titles, paper by paper."""
    papers: dict[str, dict[str, str]] = {}
    for name, entry in entries.items():
        papers.setdefault(entry.paper, {})[f"  {name}"] = entry.title
    width = max(map(len, entries)) + 4
    return "\n\n".join(f"{paper}\n{lines(titles, width)}" for paper, titles in papers.items())


def run_entry(entry: Entry, chosen: Mapping[str, object], out: Path, json: bool) -> None:
    """Run an entry with what was chosen; write its result and its page."""
    from torchlift import report
    from torchlift.train.checkpoint import write

    settings = {key: value for key, value in chosen.items() if value is not None}
    result = plain(entry.run(out, **settings))
    record, page = out / f"{entry.name}.json", out / f"{entry.name}.html"
    write(record, json_format.dumps(result, indent=1, ensure_ascii=False).encode())
    try:
        report.write(report.reproduction_page(result), page)
    except ImportError as error:
        note(f"torchlift: no page: {error}; pip install 'torchlift[report]'")
    show(json, result | {"json": record, "page": page}, f"{result['finding']}\n\n{record}\n{page}")


VERBS = [(reproduce, "reproduce", EXAMPLE)]
