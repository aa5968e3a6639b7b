"""The files in examples/ are right, to the last field."""

from pathlib import Path

import pytest

from forked import python

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples"


@pytest.mark.parametrize(
    "command", ["fit --epochs 1", "compare --epochs 1 --seeds 1", "tune --epochs 1 --trials 1"]
)
def test_they_run(run, command):
    pytest.importorskip("sklearn")
    ran = run(f"{command} --config {EXAMPLES / command.split()[0]}.toml --out x")
    assert ran.code == 0, ran.err


@pytest.mark.slow
def test_twenty_lines_make_a_model_ten_times_smaller_at_no_loss(tmp_path):
    script = EXAMPLES / "twenty_lines.py"
    lines = [line for line in script.read_text().splitlines()[1:] if line.strip()]
    assert len(lines) <= 22
    ran = python(str(script), cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    (dense, full), (small, file) = (
        (float(line.split()[1]), int(line.split()[3].replace(",", "")))
        for line in ran.stdout.splitlines()
        if line.startswith(("dense", "small"))
    )
    assert file == (tmp_path / "small.tl").stat().st_size
    assert full / file >= 10
    assert small >= dense - 0.01  # three of the 359 test images
