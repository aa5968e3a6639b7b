"""Gates over slices that need not be neighbors: heads of a fused projection, units of an LSTM."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from torchlift.core import Task
from torchlift.lifts import SoftMask
from torchlift.methods.sparsity import gates
from torchlift.methods.sparsity.switches import switches


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=4, max_size=9), st.integers(0, 1), st.integers(0, 1000))
def test_gathering_is_the_transpose_of_spreading(index, dim, seed):
    index = [*index, 0, 1, 2, 3]  # every gate has a slice
    torch.manual_seed(seed)
    shape = (len(index), 3) if dim == 0 else (3, len(index))
    grain = gates.Slices(dim, tuple(index))
    values, entries = torch.randn(4).double(), torch.randn(shape).double()
    spread = gates.spread_tiles(values, shape, grain)
    assert gates.tiles(shape, grain) == (4,)
    assert_close((spread * entries).sum(), (values * gates.tile_sums(entries, grain)).sum())


def test_a_closed_gate_takes_all_its_slices_in_all_its_weights():
    torch.manual_seed(0)
    task = Task(nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 1)), "mse")
    groups = {"heads": {"*0.weight": (0, (0, 1, 2, 0, 1, 2)), "*0.bias": (0, (0, 1, 2, 0, 1, 2))}}
    mask = SoftMask(where="*", granularity=groups)
    lifted = mask.lift(task)
    (switch,) = switches(lifted).values()
    with torch.no_grad():
        switch.logit.copy_(torch.tensor([1.0, -1.0, 1.0]))
    plain = mask.project(lifted).model
    assert (plain[0].weight == 0).all(1).tolist() == [False, True, False, False, True, False]
    assert (plain[0].bias == 0).tolist() == [False, True, False, False, True, False]
