"""Two processes, each with half of the calibration data, compress as one does with all of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

RANKS = Path(__file__).parent / "ranks.py"


def ran(out: Path, processes: int) -> tuple[list[float], list[dict[str, torch.Tensor]]]:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [sys.executable, *(launcher if processes > 1 else []), str(RANKS), str(out)]
    command += ["alone" if processes == 1 else "together"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text()), torch.load(out.with_suffix(".pt"), weights_only=True)


def test_two_processes_give_what_one_gives(tmp_path: Path) -> None:
    (errors, states), (others, same) = (ran(tmp_path / f"{n}.json", n) for n in (1, 2))
    for name, weight in states[0].items():
        torch.testing.assert_close(same[0][name], weight, atol=1e-4, rtol=1e-3)
    assert others == pytest.approx(errors, rel=0.05)
