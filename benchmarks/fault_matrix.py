"""Every fault of every verb: the n-th touch of the disk, for all n, in four kinds (``tests/run/faults.py``).

    python benchmarks/fault_matrix.py [--samples 0] [--verbs fit compare tune overwrite]

``samples`` of each kind, 0 for all. CI takes six (``tests/run/test_faults.py``).
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "tests" / "run" / "faults.py"


def tried(verb: str, samples: int) -> dict[str, object]:
    """One verb through its faults: what was said, and how long it took."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        done = subprocess.run(
            [sys.executable, str(SCRIPT), place, verb, str(samples), "0"],
            capture_output=True,
            text=True,
            check=False,
        )
    *wrong, said = done.stdout.strip().splitlines() or [done.stderr.strip()]
    return {"verb": verb, "tried": said, "wrong": wrong, "seconds": round(time.perf_counter() - started, 1)}


def main() -> int:
    """Try, and write ``results/fault_matrix.json``."""
    parser = argparse.ArgumentParser(description="faults at every touch of the disk")
    parser.add_argument("--samples", type=int, default=0)
    parser.add_argument("--verbs", nargs="+", default=["fit", "compare", "tune", "overwrite"])
    arguments = parser.parse_args()
    found = [tried(verb, arguments.samples) for verb in arguments.verbs]
    path = Path(__file__).parent / "results" / "fault_matrix.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    return int(any(row["wrong"] for row in found))


if __name__ == "__main__":
    sys.exit(main())
