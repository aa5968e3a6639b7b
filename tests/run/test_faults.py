"""Every verb through faults at every touch of the disk: the next life ends as if nothing had happened."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLES = os.environ.get("TORCHLIFT_FAULTS", "6")
"""Faults of each of four kinds; 0 for all."""


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["fit", "compare", "tune", "overwrite"])
def test_faults_make_no_difference(tmp_path: Path, verb: str) -> None:
    script = str(Path(__file__).parent / "faults.py")
    done = subprocess.run(
        [sys.executable, script, str(tmp_path), verb, SAMPLES, "0"],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "faults at" in done.stdout
