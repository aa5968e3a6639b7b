"""Random networks, half of them trained, shrunk: without zeros they come back as they are; with dead
channels planted they lose exactly these and compute the same at several sizes.

    python benchmarks/shrink_fuzz.py --out benchmarks/results/shrink_fuzz.json

Every trial has a time limit; trials that are in the file already are not run again. ``dead``: all that writes
a channel is zero, and where an activation of zero is not zero, what reads it: it must go. ``constant``: only
matrices are zero, biases and norms go on. Such a channel goes where the constant it carries fits into the
bias of what reads it, and stays with a reason where it does not (at the border of a zero-padded convolution,
or where a norm makes it vary). Outputs must agree to 1e-6 of the largest.
"""

import argparse
import dataclasses
import json
import logging
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any, cast

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from shrink_trials import Removed, trial

LIMIT = 120
"""Seconds for a trial."""
TRIALS = {
    "cnn none": 1700, "cnn dead": 1000, "cnn constant": 200,
    "transformer none": 300, "transformer dead": 150, "transformer constant": 50,
}  # fmt: skip


def attempt(kind: str, seed: int) -> dict[str, Any]:
    """A trial's numbers, or what went wrong."""
    signal.alarm(LIMIT)
    name, _, way = kind.partition(" ")
    try:
        return dataclasses.asdict(trial(name, seed, cast(Removed, way)))
    except TimeoutError:
        return {"seed": seed, "failed": f"no end within {LIMIT} s"}
    except Exception as error:  # whatever a random network raises is the finding
        return {"seed": seed, "failed": f"{type(error).__name__}: {error}"}
    finally:
        signal.alarm(0)


def ring(_number: int, _frame: Any) -> None:
    """The trial's time is up."""
    raise TimeoutError


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts over all trials of a kind."""
    done = [row for row in rows if "failed" not in row]
    left = sorted(row["left"] for row in done)
    return {
        "trials": len(rows),
        "trained": sum(row["trained"] for row in done),
        "failed": len(rows) - len(done),
        "equal": sum(row["error"] <= 1e-6 for row in done),
        "largest_error": max((row["error"] for row in done), default=0.0),
        "unchanged": sum(row["left"] == 1 and not row["cut"] for row in done),
        "exactly_the_planted_channels_cut": sum(row["cut"] == row["planted"] for row in done),
        "more_than_planted_cut": sum(row["cut"] > row["planted"] for row in done),
        "some_kept_with_reason": sum(bool(row["kept"]) and not row["unexplained"] for row in done),
        "some_kept_without_reason": sum(bool(row["unexplained"]) for row in done),
        "median_parameters_left": left[len(left) // 2] if left else None,
        "at_three_input_shapes_or_more": sum(row["shapes"] >= 3 for row in done),
    }


def main() -> None:
    """Run what is missing, and write after some trials of each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    for kind, count in TRIALS.items():
        parser.add_argument(f"--{kind.replace(' ', '-')}", type=int, default=count, dest=kind)
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/shrink_fuzz.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, ring)
    earlier = json.loads(options.out.read_text())["rows"] if options.out.exists() else {}
    wanted: dict[str, int] = {kind: getattr(options, kind) for kind in TRIALS}
    rows: dict[str, list[dict[str, Any]]] = {kind: earlier.get(kind, []) for kind in wanted}
    end = time.monotonic() + 60 * options.minutes
    while time.monotonic() < end and any(len(rows[kind]) < wanted[kind] for kind in rows):
        for kind in rows:
            upto = min(wanted[kind], len(rows[kind]) + (10 if "transformer" in kind else 20))
            rows[kind] += [attempt(kind, seed) for seed in range(len(rows[kind]), upto)]
        counts = {kind: summary(trials) for kind, trials in rows.items()}
        options.out.write_text(json.dumps({"counts": counts, "rows": rows}, indent=None) + "\n")
        print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    main()
