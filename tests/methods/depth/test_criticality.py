"""Remark 5.1: is a critical point that of a shallower network?"""

import pytest
import torch
from test_critical import critical as critical_point
from torch import nn

import torchlift as tl
from torchlift.analyze import critical, stalls
from torchlift.lifts import CriticalLayer


@pytest.mark.parametrize("after", ["0", "2"])
def test_a_lifted_point_is_traced_back_to_its_network(after):
    task, batch = critical_point(nn.ReLU())
    deep = CriticalLayer(after, batch[0]).lift(task)
    flat = nn.Sequential(*plain(deep.model))
    actual = critical(flat, batch, tolerance=1e-7)
    assert bool(actual)
    assert actual.depth == (2, 1)
    assert len(actual.merged) == 1
    assert actual.shallow_gradient < 1e-7
    torch.testing.assert_close(actual.shallow(batch[0]), task.predict(batch[0]), rtol=0, atol=1e-8)
    assert actual.inertia is not None
    assert actual.inertia[:2] == tl.analyze.inertia(task, batch)[:2]
    assert "lifted from a network with 1 layers that bend" in str(actual)


def plain(model):
    """The layers of a network and of its nodes, one after another."""
    for module in model:
        if hasattr(module, "inner"):
            yield from (module.inner, module.activation, module.outer)
        else:
            yield module


def test_other_points_are_not():
    task, batch = critical_point(nn.ReLU())
    actual = critical(task, batch, tolerance=1e-7)
    assert actual.is_critical
    assert not actual
    assert not actual.merged
    torch.manual_seed(1)
    moved = critical(nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1)).double(), batch)
    assert not moved.is_critical
    assert "not critical" in str(moved)


def test_stalls_end():
    losses = [1.0, 0.9, 0.5, *[0.4] * 20, 0.3, 0.2, 0.1, *[0.1] * 20]
    (one,) = stalls(losses)
    assert one.loss == 0.4
    assert 2 <= one.start < one.end == 22
    rows = [{"train_loss": value} for value in losses]
    task, batch = critical_point(nn.ReLU())
    assert critical(task, batch, history=rows).stalls == (one,)
