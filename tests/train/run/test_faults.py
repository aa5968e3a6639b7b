"""Every verb through every fault: the next life ends as if nothing had happened."""

import os
import re
from pathlib import Path

import pytest

from forked import python

SAMPLES = os.environ.get("TORCHLIFT_FAULTS", "1")
"""Faults of each kind; 0 for all, as ``benchmarks/fault_matrix.py`` does."""
VERBS = "fit,best-of,compare,auto,tune,overwrite"


def report(
    script: str, folder: Path, *how: str, verbs: str = VERBS, kinds: tuple[str, ...] = ()
) -> list[str]:
    """What a script of faults says, one line per verb, when nothing was wrong."""
    done = python(str(Path(__file__).parent / script), str(folder), verbs, *how, "0", *kinds)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if " faults" in line]


def test_one_fault_of_each_kind_makes_no_difference(tmp_path: Path) -> None:
    (line,) = report("faults.py", tmp_path, "1", verbs="smallest")
    assert re.match(r"smallest: [45] faults at \d+ operations", line)


@pytest.mark.slow
def test_faults_of_the_disk_make_no_difference(tmp_path: Path) -> None:
    lines = report("faults.py", tmp_path, SAMPLES)
    assert [line.partition(":")[0] for line in lines] == VERBS.split(",")
    assert all("0 faults" not in line for line in lines)


def full_at_every_write(verbs: str, folder: Path) -> None:
    """A real disk, filled to its last page before the n-th write, for every n."""
    for line in report("faults.py", folder, "0", verbs=verbs, kinds=("filled",)):
        tried, ended = map(int, re.findall(r"(\d+) (?:faults|ended)", line))
        if not tried:
            pytest.skip("this machine mounts no tmpfs")
        assert ended > 0.8 * tried  # a flush, or a write that fits into the page of its file, still succeeds


@pytest.mark.slow
def test_a_disk_that_is_full_at_any_write_is_told_and_makes_no_difference(tmp_path: Path) -> None:
    full_at_every_write("smallest", tmp_path)


@pytest.mark.fuzz
@pytest.mark.parametrize("verb", ["tune", "fit", "compare", "auto"])
def test_a_disk_that_is_full_at_any_write_of_a_longer_run(verb: str, tmp_path: Path) -> None:
    full_at_every_write(verb, tmp_path)


@pytest.mark.slow
def test_dying_workers_of_a_loader_make_no_difference(tmp_path: Path) -> None:
    lines = report("deaths.py", tmp_path, "worker", "1")
    assert [line.partition(" at ")[0] for line in lines] == [f"{verb}: 1 faults" for verb in VERBS.split(",")]


@pytest.mark.slow
def test_one_of_two_processes_that_dies_makes_no_difference(tmp_path: Path) -> None:
    """What is left of them ends in one line; a search raises there before it begins."""
    lines = report("deaths.py", tmp_path, "rank", "1")
    expected = dict.fromkeys(VERBS.split(","), "1 faults") | dict.fromkeys(
        ("auto", "tune"), "0 faults: an error"
    )
    assert dict(line.partition(" at ")[0].split(": ", 1) for line in lines) == expected
