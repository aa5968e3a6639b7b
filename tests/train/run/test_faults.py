"""Every verb through every fault: the next life ends as if nothing had happened."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLES = os.environ.get("TORCHLIFT_FAULTS", "1")
"""Faults of each kind; 0 for all, as ``benchmarks/fault_matrix.py`` does."""
VERBS = "fit,best-of,compare,auto,tune,overwrite"


def told(script: str, folder: Path, *how: str) -> list[str]:
    """What a script of faults says, one line per verb, when nothing was wrong."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / script), str(folder), VERBS, *how, "0"],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if " faults" in line]


@pytest.mark.slow
def test_faults_of_the_disk_make_no_difference(tmp_path: Path) -> None:
    lines = told("faults.py", tmp_path, SAMPLES)
    assert [line.partition(":")[0] for line in lines] == VERBS.split(",")
    assert all("0 faults" not in line for line in lines)


@pytest.mark.slow
def test_dying_workers_of_a_loader_make_no_difference(tmp_path: Path) -> None:
    lines = told("deaths.py", tmp_path, "worker", "1")
    assert [line.partition(" at ")[0] for line in lines] == [f"{verb}: 1 faults" for verb in VERBS.split(",")]


@pytest.mark.slow
def test_one_of_two_processes_that_dies_makes_no_difference(tmp_path: Path) -> None:
    """What is left of them ends in one line; a search is refused there before it begins."""
    lines = told("deaths.py", tmp_path, "rank", "1")
    expected = dict.fromkeys(VERBS.split(","), "1 faults") | dict.fromkeys(
        ("auto", "tune"), "0 faults: refused"
    )
    assert dict(line.partition(" at ")[0].split(": ", 1) for line in lines) == expected
