"""Every fault of every verb: the n-th touch of the disk in four kinds, a disk that is really full at the n-th
write, a dying worker, a dying process.

    python benchmarks/fault_matrix.py [--samples 0] [--verbs fit auto …] [--who disk filled worker rank]

``filled`` mounts a small tmpfs and fills it to its last page before the n-th write (where it may mount).

``samples`` of each kind, 0 for all n. CI takes a few (``tests/train/run/test_faults.py``, whose scripts these
are). Rows of ``results/fault_matrix.json`` with the same verb, column and samples are kept: a run that was
stopped goes on.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parents[1] / "tests" / "train" / "run"
RESULTS = Path(__file__).parent / "results" / "fault_matrix.json"
VERBS = ("smallest", "fit", "auto", "compare", "tune", "overwrite")
DISK = {"disk": ["exit,cut,error,full"], "filled": ["filled"]}
"""Kinds of faults of a disk."""
WHO = (*DISK, "worker", "rank")


def tried(verb: str, who: str, samples: int) -> dict[str, Any]:
    """One verb through its faults: what was said, and how long it took."""
    script, how = ("faults.py", []) if who in DISK else ("deaths.py", [who])
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        arguments = [folder, verb, *how, str(samples), "0", *DISK.get(who, [])]
        done = subprocess.run(
            [sys.executable, str(SCRIPTS / script), *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith(verb)]
    *wrong, said = lines or [done.stderr.strip()]
    wrong = wrong if done.returncode == 0 or wrong else [done.stderr.strip()[-500:]]
    seconds = round(time.perf_counter() - started, 1)
    return {"verb": verb, "who": who, "samples": samples, "tried": said, "wrong": wrong, "seconds": seconds}


def main() -> int:
    """Try, and write ``results/fault_matrix.json`` after each row."""
    parser = argparse.ArgumentParser(description="faults at every touch of the disk, and deaths")
    parser.add_argument("--samples", type=int, default=0)
    parser.add_argument("--verbs", nargs="+", default=VERBS, choices=VERBS)
    parser.add_argument("--who", nargs="+", default=WHO, choices=WHO)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    for who in options.who:
        for verb in options.verbs:
            key = (verb, who, options.samples)
            if any((row["verb"], row["who"], row["samples"]) == key and not row["wrong"] for row in rows):
                continue
            rows = [row for row in rows if (row["verb"], row["who"]) != key[:2]]
            rows.append(tried(*key))
            print(json.dumps(rows[-1]), flush=True)
            RESULTS.write_text(json.dumps(rows, indent=1) + "\n")
    return int(any(row["wrong"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
