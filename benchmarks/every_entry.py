"""Every reproduction at a scale of nothing: that it runs to its record and its page, and what that takes.

    python benchmarks/every_entry.py --out runs/entries          # all of them, one after another
    python benchmarks/every_entry.py table3 folding              # some of them, again
    python benchmarks/every_entry.py --record benchmarks/results/every_entry.json

Each is ``torchlift reproduce NAME --images 200 --epochs 1 --seeds 1`` in a process of its own with a limit of
CPU time; networks with billions of operations an image see fewer images (``FEWER``). What ran is in
``OUT/journal.jsonl`` and is not run again unless it is named; what failed is. Where a file of Fashion-MNIST
or CIFAR-100 is not at hand, random images are put in its place, and the row says so. The runs of an entry go
through an executor that counts them, as they would with ``--jobs``.
The records say nothing about the papers: they stay in OUT. ``--record`` writes how each entry ended, in how
many CPU seconds and on which commit; entries that were not tried stay in it as they were.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torchlift.cli.reproduction import find_entries
from torchlift.cli.verbs.reproduce import run_entry
from torchlift.data import LoadError
from torchlift.experiments.executors import using
from torchlift.journal import Journal

IMAGES = 200
FEWER = {
    **dict.fromkeys(("sharing-cifar10", "sharing-cifar100", "sharing-cutout", "optimizers"), 2),
    **dict.fromkeys(("folding", "optimizer-tuning", "separability"), 4),
    **dict.fromkeys(("deep-paths", "shortest-paths"), 4),
    **dict.fromkeys(("conv6-tickets", "layer-patterns", "one-shot-pruning", "supermasks"), 20),
    **dict.fromkeys(("smol-dcgan", "smol-mobile", "smol-translation"), 40),
}
"""Images of the entries whose networks take billions of operations for each."""
MISSING, RANDOM = 3, 256
"""The exit code of an entry whose data are not there; how many images are drawn for a file."""


def attempt(name: str, out: Path, limit: int) -> dict[str, Any]:
    """Run an entry from nothing: how it ended, its CPU seconds, and what it found or said last."""
    folder, before = out / name, children_seconds()
    code, drawn = in_process(name, folder, limit, None), False
    if code == MISSING and os.environ.get("TORCHLIFT_DATA"):
        code, drawn = in_process(name, folder, limit, filled(out / "data")), True
    written = all((folder / f"{name}.{end}").exists() for end in ("json", "html"))
    ended = {0: "ran" if written else "failed", MISSING: "no data", -9: "too long"}.get(code, "failed")
    if ended == "ran":
        said = json.loads((folder / f"{name}.json").read_text())["finding"]
    else:
        said = (folder / "log").read_text().strip().rpartition("\n")[2]
    return {
        "entry": name,
        "commit": commit(),
        "images": FEWER.get(name, IMAGES),
        "ended": ended,
        "CPU seconds": round(children_seconds() - before, 1),
        "jobs": int((folder / "jobs").read_text()) if ended == "ran" else None,
        "random images": drawn,
        "said": said,
    }


def in_process(name: str, folder: Path, limit: int, data: Path | None) -> int:
    """An entry in a process of its own; how that ended."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    child = multiprocessing.get_context("fork").Process(target=reproduce, args=(name, folder, limit, data))
    child.start()
    child.join()
    return 1 if child.exitcode is None else child.exitcode


def reproduce(name: str, folder: Path, limit: int, data: Path | None) -> None:
    """The command, with what it prints in a file, ended after ``limit`` CPU seconds."""
    threading.Thread(target=watched, args=(time.process_time() + limit,), daemon=True).start()
    torch.set_num_threads(1)
    engine = Counting()
    size: dict[str, Any] = {"seeds": 1, "epochs": 1.0, "images": FEWER.get(name, IMAGES)}
    with (
        (folder / "log").open("w", 1) as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        try:
            chosen = size | ({} if data is None else {"data": str(data)})
            with using(engine):
                run_entry(find_entries()[name], chosen, folder, False)
            (folder / "jobs").write_text(str(engine.jobs))
            code = 0
        except LoadError as missing:
            print(missing)
            code = MISSING
        except BaseException:
            traceback.print_exc()
            code = 1
    os._exit(code)


def watched(end: float) -> None:
    """End this process when it has had its CPU seconds.

    A limit of the system's own makes clocks of CPU time coarse, and with it the entries that read them.
    """
    while time.process_time() < end:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)


class Counting:
    """An executor that runs each job at once, from its bytes and to its bytes, and counts them."""

    def __init__(self) -> None:
        self.jobs = 0

    def submit(self, function: Callable[[bytes], bytes], payload: bytes) -> Future[bytes]:
        """Done already."""
        self.jobs += 1
        future = Future[bytes]()
        future.set_result(function(payload))
        return future


def filled(folder: Path) -> Path:
    """The folder of data sets, with random images where those of Fashion-MNIST or CIFAR-100 are missing."""
    folder.mkdir(exist_ok=True)
    for path in Path(os.environ["TORCHLIFT_DATA"]).resolve().iterdir():
        if not (folder / path.name).exists():
            (folder / path.name).symlink_to(path)
    draw = np.random.default_rng(0)
    labels = np.arange(RANDOM, dtype=np.uint8)[:, None]
    for split, name in (("train", "train"), ("test", "t10k")):
        rows = draw.integers(0, 256, (RANDOM, 3072), dtype=np.uint8)
        write(folder / "cifar100" / f"{split}.bin", (labels % 20, labels % 100, rows))
        for kind, shape, values in (
            ("images-idx3", (RANDOM, 28, 28), draw.integers(0, 256, (RANDOM, 784), dtype=np.uint8)),
            ("labels-idx1", (RANDOM,), labels % 10),
        ):
            header = np.array([0x800 + len(shape), *shape], ">u4").view(np.uint8)
            write(folder / "fashion-mnist" / f"{name}-{kind}-ubyte", (header[None], values.reshape(1, -1)))
    return folder


def write(file: Path, columns: Iterable[Any]) -> None:
    """Bytes in columns, unless the file is there."""
    file.parent.mkdir(exist_ok=True)
    if not file.exists():
        file.write_bytes(np.hstack(list(columns)).tobytes())


def commit() -> str | None:
    """What is checked out, with a + where files differ from it; None outside a checkout."""
    words = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--abbrev=12", "--dirty=+"]
    said = subprocess.run(words, capture_output=True, text=True)
    return said.stdout.strip() or None


def summary(rows: Mapping[str, Mapping[str, Any]], entries: Sequence[str]) -> dict[str, Any]:
    """What is recorded: a row for every entry that was tried, in order, and those that did not run."""
    tried = [rows[name] for name in entries if name in rows]
    return {
        "title": "Every reproduction at a scale of nothing",
        "command": "python benchmarks/every_entry.py --record benchmarks/results/every_entry.json",
        "entries": len(entries),
        "ran": sum(row["ended"] == "ran" for row in tried),
        "did not run": [name for name in entries if rows.get(name, {}).get("ended") != "ran"],
        "CPU seconds": round(sum(row["CPU seconds"] for row in tried), 1),
        "rows": [{key: value for key, value in row.items() if key not in ("said", "crc")} for row in tried],
    }


def children_seconds() -> float:
    """CPU time of all processes that have ended."""
    return sum(os.times()[2:4])


def main() -> int:
    """Run what has not run, or what is named; 0 where all entries ran."""
    parser = argparse.ArgumentParser(description="Every entry at a scale of nothing, one after another.")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path, default=Path("runs/entries"))
    parser.add_argument("--limit", type=int, default=120, help="CPU seconds that an entry may take")
    parser.add_argument("--record", type=Path, help="a JSON file for how each entry ended")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    entries = sorted(find_entries())
    if unknown := set(options.names) - set(entries):
        parser.error(f"no entry is called {', '.join(sorted(unknown))}; `torchlift reproduce` lists them")
    journal = Journal(options.out / "journal.jsonl")
    rows = {row["entry"]: row for row in journal.read()}
    for name in options.names or entries:
        if not options.names and rows.get(name, {}).get("ended") == "ran":
            continue
        rows[name] = attempt(name, options.out, options.limit)
        journal.append(rows[name])
        row = rows[name]
        print(f"{row['ended']:8} {row['CPU seconds']:6.1f} s  {name}: {row['said']}", flush=True)
    record = summary(rows, entries)
    if options.record is not None:
        options.record.write_text(json.dumps(record, indent=1) + "\n")
    left = ", ".join(record["did not run"]) or "none"
    print(f"{record['ran']} of {len(entries)} ran, {record['CPU seconds']:.0f} CPU s in all; not: {left}")
    return 1 if record["did not run"] else 0


if __name__ == "__main__":
    sys.exit(main())
