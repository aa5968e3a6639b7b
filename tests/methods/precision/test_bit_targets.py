"""How a target in bits is steered for while precisions are learned, and met once they are."""

import warnings

import pytest
import torch
from torch import nn

from methods.sparsity.sparse_runs import model, run
from torchlift.core import Task
from torchlift.lifts import Precision, precision
from torchlift.methods.precision import smol
from torchlift.methods.precision.bit_targets import allocated_bits, meet_bits, noisy, steer
from torchlift.recipes import Smol
from torchlift.targets import Target


def test_a_price_is_raised_above_the_course_and_lowered_below():
    lifted = Precision().lift(Task(model()))
    steer(lifted, 1e-6, 2.0)
    assert len({id(node.price[0]) for node in noisy(lifted)}) == 1
    dial = noisy(lifted)[0].price[0]
    dial.turn(0.5)  # nothing has moved: 8 bits are above the course
    assert float(dial()) == pytest.approx(1.5e-6)
    with torch.no_grad():
        for node in noisy(lifted):
            node.logit.fill_(6.0)
    assert allocated_bits(noisy(lifted)) < 1.1
    dial.turn(0.51)
    assert 0.75e-6 <= float(dial()) < 1.5e-6
    again = float(dial())
    dial.turn(0.515)  # the same instant: nothing happens
    assert float(dial()) == again


def test_tensors_get_one_more_bit_where_the_target_allows():
    """A shift of all precisions alone leaves a gap: of those it left, no tensor fits into what remains."""
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 2))
    lift = Precision(granularity="tensor", p_init=4.5)
    lifted = lift.lift(Task(plain))
    nodes_ = noisy(lifted)
    with torch.no_grad():
        for node, p in zip(nodes_, (4.2, 4.6, 4.9), strict=True):
            node.logit.fill_(precision.logit(p))
    meet_bits(lifted, lift, Target("bits", 4.3))
    average_bits, low = allocated_bits(nodes_), min(node.shift for node in nodes_)
    left = [node for node in nodes_ if node.shift == low]
    assert len(left) < 3
    assert average_bits <= 4.3
    for node in left:
        node.shift += 1.0
        assert allocated_bits(nodes_) > 4.3
        node.shift -= 1.0
    for node in nodes_:
        node.shift = low
    assert allocated_bits(nodes_) < average_bits


def test_what_the_last_shift_cannot_reach_is_said(monkeypatch):
    monkeypatch.setattr(smol, "reachable_bits", lambda *_: 0.5)
    with pytest.warns(UserWarning, match=r"bits=0.01; 1 is the least"):
        run(Smol(bits=0.01, zero=False), epochs=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(Smol(bits=2), epochs=2)
