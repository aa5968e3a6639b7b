"""``torchlift reproduce``: a paper's result, measured here."""

import json as json_format
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from torchlift.cli.flags import JOBS, Debug, JsonFlag
from torchlift.cli.output import jsonable, lines, print_note, print_result
from torchlift.cli.pairs import unknown_name
from torchlift.cli.reproduction import Entry, find_entries

EXAMPLE = """Examples:

    torchlift reproduce                                    # what there is
    torchlift reproduce table3 --seeds 3 --out runs/table3
    torchlift reproduce table2 --data ~/data --epochs 20 --images 5000
    torchlift reproduce table2 --data ~/data --device cuda # as published
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
    epochs: Annotated[
        float | None,
        Parameter(help="Epochs of one training (default: the paper's); schedules shrink with it."),
    ] = None,
    images: Annotated[
        int | None, Parameter(help="Samples to train on, and at most to test on (default: the paper's).")
    ] = None,
    stand_in: Annotated[
        bool, Parameter(help="The small network and data that stand in for the paper's, where there are any.")
    ] = False,
    as_published: Annotated[bool, Parameter(help="Only the paper's own arms, without torchlift's.")] = False,
    arms: Annotated[
        str | None, Parameter(help="Only the arms that match one of these globs, separated by semicolons.")
    ] = None,
    device: Annotated[str | None, Parameter(help="cpu, cuda, mps … (default: the CPU).")] = None,
    executor: Annotated[
        str | None, Parameter(help="package.module:factory of an executor (Dask, submitit, …) for the runs.")
    ] = None,
    jobs: JOBS = None,
    json: JsonFlag = False,
    debug: Debug = False,
) -> None:
    """Measure a paper's result: its number beside ours, several seeds, with controls at equal cost.

    Without options an entry is what was published. --epochs, --images and --seeds make less of the same.
    --jobs and --executor share the runs of its arms among processes.
    """
    del debug
    entries = find_entries(papers)
    if name is None:
        print_result(
            json, {"entries": {key: entry.title for key, entry in entries.items()}}, entry_list(entries)
        )
        return
    if name not in entries:
        raise unknown_name("reproduce: entry", name, entries)
    for option, value in {"--seeds": seeds, "--images": images}.items():
        if value is not None and value < 1:
            raise ValueError(f"{option} must be at least 1, got {value}")
    if epochs is not None and not epochs > 0:
        raise ValueError(f"--epochs must be above 0, got {epochs:g}")
    if jobs is not None and executor is not None:
        raise ValueError("--jobs and --executor both say where the runs go: pass one of them")
    from torchlift.cli.imports import import_object
    from torchlift.experiments.executors import Processes, using

    chosen = {
        "data": data, "seeds": seeds, "epochs": epochs, "images": images,
        "stand_in": stand_in or None, "as_published": as_published or None, "arms": arms, "device": device,
    }  # fmt: skip
    pool = (
        import_object("--executor", executor)()
        if executor is not None
        else "processes"
        if jobs == 0
        else jobs
    )
    with using(pool) as shared:
        run_entry(entries[name], chosen, out, json)
        if isinstance(shared, Processes) and not shared.jobs:
            print_note(f"torchlift: {name} has no new runs to share: --jobs changed nothing")


def entry_list(entries: Mapping[str, Entry]) -> str:
    """Names and titles, paper by paper."""
    papers: dict[str, dict[str, str]] = {}
    for name, entry in entries.items():
        papers.setdefault(entry.paper, {})[f"  {name}"] = entry.title
    width = max(map(len, entries)) + 4
    return "\n\n".join(f"{paper}\n{lines(titles, width)}" for paper, titles in papers.items())


def run_entry(entry: Entry, chosen: Mapping[str, object], out: Path, json: bool) -> None:
    """Run an entry with what was chosen; write its result and its page."""
    from torchlift import report
    from torchlift.train.checkpoint import write_durable

    settings = {key: value for key, value in chosen.items() if value is not None}
    result = jsonable(entry.run(out, **settings))
    record, page = out / f"{entry.name}.json", out / f"{entry.name}.html"
    write_durable(record, json_format.dumps(result, indent=1, ensure_ascii=False).encode())
    try:
        report.write(report.reproduction_page(result), page)
    except ImportError as error:
        print_note(f"torchlift: no page: {error}; pip install 'torchlift[report]'")
    print_result(json, result | {"json": record, "page": page}, f"{result['finding']}\n\n{record}\n{page}")


VERBS = [(reproduce, "reproduce", EXAMPLE)]
