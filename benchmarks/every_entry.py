"""Every reproduction at a scale of nothing: that it runs to its record and its page, and what that takes.

    python benchmarks/every_entry.py --out runs/entries          # all of them, one after another
    python benchmarks/every_entry.py table3 folding              # some of them, again

Each is ``torchlift reproduce NAME --images 200 --epochs 1 --seeds 1`` in a process of its own with a limit of
CPU time; wide residual networks, with billions of operations an image, see four images. What ran is in
``OUT/journal.jsonl`` and is not run again unless it is named; what failed is.
The records say nothing about the papers: they stay in OUT.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import resource
import shutil
import sys
import traceback
from pathlib import Path
from typing import Any

import torch

from torchlift.cli.program import main as torchlift
from torchlift.cli.reproduction import find_entries
from torchlift.journal import Journal

IMAGES = 200
FEWER = {
    **dict.fromkeys(("folding", "sharing-cifar10", "sharing-cifar100", "sharing-cutout"), 4),
    **dict.fromkeys(("optimizers", "optimizer-tuning", "separability"), 4),
}
"""Images of the entries whose networks take billions of operations for each."""


def attempt(name: str, out: Path, limit: int) -> dict[str, Any]:
    """Run an entry from nothing: how it ended, its CPU seconds, and what it found or said last."""
    place = out / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    before = children_seconds()
    child = multiprocessing.get_context("fork").Process(target=reproduce, args=(name, place, limit))
    child.start()
    child.join()
    written = all((place / f"{name}.{end}").exists() for end in ("json", "html"))
    ended = "ran" if child.exitcode == 0 and written else "too long" if child.exitcode == -9 else "failed"
    if ended == "ran":
        said = json.loads((place / f"{name}.json").read_text())["finding"]
    else:
        said = (place / "log").read_text().strip().rpartition("\n")[2]
    return {"entry": name, "ended": ended, "CPU seconds": round(children_seconds() - before, 1), "said": said}


def reproduce(name: str, place: Path, limit: int) -> None:
    """The command, with what it prints in a file; the system ends it after ``limit`` CPU seconds."""
    used = int(sum(os.times()[:2]))
    resource.setrlimit(resource.RLIMIT_CPU, (used + limit, used + limit))
    torch.set_num_threads(1)
    with (
        (place / "log").open("w", 1) as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        try:
            size = f"--images {FEWER.get(name, IMAGES)} --epochs 1 --seeds 1 --out {place} --debug"
            code = torchlift(["reproduce", name, *size.split()])
        except BaseException:
            traceback.print_exc()
            code = 1
    os._exit(code)


def children_seconds() -> float:
    """CPU time of all processes that have ended."""
    return sum(os.times()[2:4])


def main() -> int:
    """Run what has not run, or what is named; 0 where all entries ran."""
    parser = argparse.ArgumentParser(description="Every entry at a scale of nothing, one after another.")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path, default=Path("runs/entries"))
    parser.add_argument("--limit", type=int, default=120, help="CPU seconds that an entry may take")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    known = sorted(find_entries())
    if unknown := set(options.names) - set(known):
        parser.error(f"no entry is called {', '.join(sorted(unknown))}; `torchlift reproduce` lists them")
    journal = Journal(options.out / "journal.jsonl")
    rows = {row["entry"]: row for row in journal.read()}
    for name in options.names or known:
        if not options.names and rows.get(name, {}).get("ended") == "ran":
            continue
        rows[name] = attempt(name, options.out, options.limit)
        journal.append(rows[name])
        row = rows[name]
        print(f"{row['ended']:8} {row['CPU seconds']:6.1f} s  {name}: {row['said']}", flush=True)
    ran = [row for row in rows.values() if row["ended"] == "ran"]
    total = sum(row["CPU seconds"] for row in rows.values())
    left = [name for name in known if rows.get(name, {}).get("ended") != "ran"]
    print(f"{len(ran)} of {len(known)} ran, {total:.0f} CPU s in all; not: {', '.join(left) or 'none'}")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
