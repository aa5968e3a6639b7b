"""Exact zeros survive every optimizer."""

from functools import partial

import pytest
import torch
from torch import nn

from torchlift.core import Task, groups, mark_pruned
from torchlift.lifts import Expand, Rotate
from torchlift.methods.sparsity.keep_zeros import KeepZeros
from torchlift.methods.sparsity.soft_mask import SoftMask

OPTIMIZERS = [
    partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
    partial(torch.optim.Adam, lr=0.1, weight_decay=0.1),
    partial(torch.optim.AdamW, lr=0.1),
    partial(torch.optim.RMSprop, lr=0.1, momentum=0.9),
    partial(torch.optim.Adagrad, lr=0.1),
]


def pruned() -> Task:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    with torch.no_grad():
        model[0].weight[torch.rand(6, 4) < 0.5] = 0
        nn.init.zeros_(model[3].weight)
    return Task(model, "mse")


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_zeros_stay_zero(make):
    plain = pruned()
    zeros = plain.model[0].weight == 0
    lifted = KeepZeros().lift(plain)
    optimizer = make(groups(lifted, {"*": {}}))
    x, y = torch.randn(16, 4), torch.randn(16, 3)
    for _ in range(10):
        optimizer.zero_grad()
        lifted((x, y)).backward()
        optimizer.step()
    held = KeepZeros().project(lifted)
    assert torch.equal(held.model[0].weight == 0, zeros)
    assert not torch.equal(held.model[0].weight, plain.model[0].weight)
    assert bool((held.model[3].weight != 0).all())  # all zero is an initialization, not a pruning


def test_nothing_to_hold_is_no_error():
    plain = Task(nn.Linear(3, 2), "mse")
    lifted = KeepZeros().lift(plain)
    assert type(lifted) is Task
    assert lifted is not plain
    assert type(KeepZeros().project(lifted)) is Task


def test_where_limits_what_is_held():
    assert type(KeepZeros(where="3.*").lift(pruned())) is Task


def test_zeros_are_held_under_other_lifts():
    """Whatever computes a weight whose zeros are held, it is multiplied by their mask."""
    plain = pruned()
    zeros = plain.model[0].weight == 0
    assert mark_pruned(plain) == ["model.0.weight"]
    for lift in (SoftMask(where="0.weight", s_init=0.2, variant="published"), Expand("0.weight"), Rotate()):
        lifted = lift.lift(plain)
        optimizer = torch.optim.SGD(lifted.parameters(), 0.1, momentum=0.9, weight_decay=0.1)
        for _ in range(3):
            lifted((torch.randn(4, 4), torch.randn(4, 3))).backward()
            optimizer.step()
        small = lift.project(lifted)
        assert bool((small.model[0].weight[zeros] == 0).all()), lift
        assert not torch.equal(small.model[0].weight, plain.model[0].weight)
