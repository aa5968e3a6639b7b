"""Rivals of learned precision: forward and gradient of each against its paper's formulas, written out."""

import copy
import math

import pytest
import torch
from torch import nn

from methods.single_node import node_of
from torchlift.core import Node, Problem, Task, anneal, constrain, nodes
from torchlift.errors import TorchliftError
from torchlift.lifts import BitPlanes, DoReFa, LearnedStep
from torchlift.recipes import Bsq
from torchlift.testing import Steps

SHAPE = (7, 5)


def weight() -> torch.Tensor:
    return torch.randn(SHAPE, dtype=torch.float64)


def gradients(node: nn.Module) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    seed = torch.randn(SHAPE, dtype=torch.float64)
    (node() * seed).sum().backward()
    return seed, {name: p.grad for name, p in node.named_parameters()}


@pytest.mark.parametrize("bits", [2, 3, 8])
def test_dorefa(bits):
    w = weight()
    node = node_of(DoReFa(bits=bits), w)
    t, c, top = torch.tanh(w), float(w.abs().max()), 2**bits - 1
    m = float(t.abs().max())
    for i in range(7):
        for j in range(5):
            r = math.tanh(float(w[i, j])) / (2 * m) + 0.5
            assert node()[i, j].item() == pytest.approx(c * (2 * round(top * r) / top - 1), abs=1e-12)
    seed, actual = gradients(node)
    wanted = seed * c * (1 - t**2) / m
    k = int(t.abs().argmax())
    wanted.view(-1)[k] -= c * float((seed * t).sum()) / m**2 * float(torch.sign(t.view(-1)[k]) * (1 - m**2))
    assert torch.allclose(actual["weight"], wanted)
    assert len(node.project().unique()) <= 2**bits


def test_dorefa_at_one_bit_is_the_sign_times_the_mean():
    w = weight()
    node = node_of(DoReFa(bits=1), w)
    assert torch.allclose(node(), w.abs().mean() * torch.sign(w))
    seed, actual = gradients(node)
    assert torch.equal(actual["weight"], seed)


@pytest.mark.parametrize("bits", [2, 4])
def test_learned_step(bits):
    w = weight()
    w[0, :2] = torch.tensor([9.0, -9.0])  # beyond the range on both sides
    node = node_of(LearnedStep(bits=bits), w)
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    s = 2 * float(w.abs().mean()) / math.sqrt(high)
    assert node.step.item() == pytest.approx(s)
    assert torch.allclose(node(), s * torch.round((w / s).clamp(low, high)))
    seed, actual = gradients(node)
    inside = (w / s > low) & (w / s < high)
    assert torch.allclose(actual["weight"], seed * inside)
    slope = torch.where(inside, torch.round(w / s) - w / s, torch.where(w < 0, float(low), float(high)))
    assert actual["step"].item() == pytest.approx(float((seed * slope).sum()) / math.sqrt(35 * high))
    assert bool(inside.any())
    assert not bool(inside.all())


def planes(bits: int = 4, price: float = 0.5) -> Node:
    return node_of(BitPlanes(bits=bits, strength=35 * price, rounds=10), weight())


def test_bit_planes_start_at_the_rounded_weight_with_binary_planes():
    w = weight()
    node = node_of(BitPlanes(bits=4, strength=0.5, rounds=10), w)
    c = float(w.abs().max()) / 15
    assert torch.allclose(node(), c * torch.round(w / c))
    assert set(node.positive.unique().tolist()) <= {0.0, 1.0}
    assert not bool((node.positive * node.negative).any())
    seed, actual = gradients(node)
    for b in range(4):
        assert torch.allclose(actual["positive"][b], c * 2**b * seed)
        assert torch.allclose(actual["negative"][b], -c * 2**b * seed)
    assert not bool(actual["positive"][4].any())


def test_bit_planes_pay_for_every_plane():
    node = planes()
    norms = [
        math.sqrt(1e-8 + (node.positive[b].square().sum() + node.negative[b].square().sum()).item())
        for b in range(4)
    ]
    assert node.penalty().item() == pytest.approx(0.5 * 4 * 35 * sum(norms))
    lifted = BitPlanes(bits=4, strength=2.0).lift(Task(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))))
    prices = [node.price for _, node in nodes(lifted)]
    assert prices == [2.0 / 20] * 2


def test_requantizing_keeps_the_weight_and_drops_empty_planes():
    node = planes()
    with torch.no_grad():
        node.positive.add_(0.3 * torch.rand_like(node.positive))
        node.positive[3].zero_()
        node.negative[3].zero_()
        node.positive[0].zero_()
        node.negative[0].zero_()
        for planes_of_sign in (node.positive, node.negative):
            planes_of_sign.copy_(planes_of_sign.round())
    before = node().detach().clone()
    node.requantize()
    assert torch.equal(node(), before)
    assert node.alive.tolist() == [False, True, True, False, False]
    assert node.bits() == 2
    with torch.no_grad():
        node.positive.add_(5.0)
    constrain(node)
    assert node.positive[1].unique().tolist() == [2.0]
    assert not bool(node.positive[0].any())


def test_planes_are_requantized_by_the_clock():
    lifted = BitPlanes(bits=3, rounds=10).lift(Task(nn.Linear(3, 4)))
    ((_, node),) = nodes(lifted)
    with torch.no_grad():
        node.positive.mul_(0.9)
    anneal(lifted, 0.05)
    assert 0.9 in [round(v, 2) for v in node.positive.unique().tolist()]
    anneal(lifted, 0.1)
    assert set(node.positive.unique().tolist()) <= {0.0, 1.0}


def test_levels_of_fine_tuning_are_those_the_planes_leave():
    model, seen = nn.Linear(5, 7).double(), list[Problem]()

    class Noting(Steps):
        def __call__(self, problem: Problem, **settings: object) -> None:
            seen.append(copy.deepcopy(problem))

    Bsq(bits=4)(Task(model, "mse"), Noting((torch.randn(8, 5).double(), torch.randn(8, 7).double())))
    node, levels = (node for problem in seen for _, node in nodes(problem))
    assert torch.allclose(levels(), node())
    with torch.no_grad():
        levels.weight.add_(torch.randn_like(levels.weight))
    ratio = levels.project() / levels.step
    assert torch.allclose(ratio, ratio.round())
    assert float(ratio.abs().max()) <= 2 ** node.bits() - 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DoReFa(bits=0), "whole number from 1"),
        (lambda: LearnedStep(bits=1), "whole number from 2"),
        (lambda: BitPlanes(bits=2.5), "whole number from 1"),
    ],
)
def test_bits_that_make_no_sense(make, message):
    with pytest.raises(TorchliftError, match=message):
        make()
