"""Masks agree across processes, drawn ones too."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from forked import torchrun

NAMES = ("continuous", "tickets", "stochastic")


@pytest.mark.slow
def test_two_processes_prune_the_same_weights(tmp_path):
    script = Path(__file__).parent / "mask_ranks.py"
    torchrun(str(script), str(tmp_path))
    for name in NAMES:
        one, two = (load_file(tmp_path / f"{name}-{rank}.safetensors") for rank in (0, 1))
        assert all(torch.equal(one[key], two[key]) for key in one), name
        pruned = sum(int(mask.sum()) for mask in one.values())
        assert 0 < pruned < sum(mask.numel() for mask in one.values()), name
