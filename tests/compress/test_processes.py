"""Two processes, each with half of the calibration data, compress as one does with all of them."""

import json
from pathlib import Path

import pytest
import torch

from forked import python, torchrun

RANKS = str(Path(__file__).parent / "ranks.py")


def read(out: Path) -> tuple[list[float], list[dict[str, torch.Tensor]]]:
    return json.loads(out.read_text()), torch.load(out.with_suffix(".pt"), weights_only=True)


def test_two_processes_give_what_one_gives(tmp_path: Path) -> None:
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    alone = python(RANKS, str(one), "alone")
    assert alone.returncode == 0, alone.stdout + alone.stderr
    torchrun(RANKS, str(two), "together")
    (errors, states), (others, same) = read(one), read(two)
    for state, other in zip(states, same, strict=True):
        for name, weight in state.items():
            torch.testing.assert_close(other[name], weight, atol=1e-4, rtol=1e-3)
    assert others == pytest.approx(errors, rel=0.05)
