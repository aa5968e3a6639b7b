"""Baselines: closed forms of their gates, and what projection leaves."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from methods.single_node import node_of
from torchlift.core import Task, groups
from torchlift.errors import OrderError
from torchlift.lifts import HardConcrete, Slim, SoftThreshold, StochasticMask


def task() -> Task:
    torch.manual_seed(0)
    return Task(nn.Linear(30, 20).double(), "mse")


def test_hard_concrete_matches_its_distribution():
    """P(z ≠ 0) = σ(log α − β log(−γ/ζ)), and z = 1 has the mass the stretch gives it."""
    torch.manual_seed(0)
    sigma = lambda v: 1 / (1 + math.exp(-v))
    node = node_of(HardConcrete(keep=sigma(0.3), strength=1.0), torch.ones(400, 500, dtype=torch.float64))
    z = node().detach()
    nonzero = sigma(0.3 - (2 / 3) * math.log(0.1 / 1.1))
    one = sigma(0.3 - (2 / 3) * math.log((1 - -0.1) / (1.1 - 1)))
    assert float((z != 0).double().mean()) == pytest.approx(nonzero, abs=0.005)
    assert float((z == 1).double().mean()) == pytest.approx(one, abs=0.005)
    assert float(node.penalty().detach()) / z.numel() == pytest.approx(nonzero, abs=1e-9)
    with torch.no_grad():
        node.logit[0, :4] = torch.tensor([0.0, 0.05, 0.5, 1.0]).logit()
    assert node.eval()().detach()[0, :4].tolist() == pytest.approx([0.0, 0.0, 0.5, 1.0])


def test_hard_concrete_pays_for_what_is_left_and_projects_to_its_middle():
    lift = HardConcrete(strength=0.01, keep=0.5)
    lifted = lift.lift(task())
    node = lifted.nodes["model/weight"]
    assert lifted.penalty().item() == pytest.approx(0.01 * 600 / (1 + math.exp(2 / 3 * math.log(0.1 / 1.1))))
    with torch.no_grad():
        node.logit[:10] = -4.0
    hard = lift.project(lifted).model.weight
    assert not hard[:10].any()
    assert_close(hard[10:], 0.5 * task().model.weight[10:])
    assert torch.equal(lifted.eval().nodes["model/weight"](), node.project())


def test_bernoulli_gates_draw_and_let_gradients_through():
    lift = StochasticMask(s_init=0.0, strength=0.1)
    lifted = lift.lift(task()).train()
    node = lifted.nodes["model/weight"]
    torch.manual_seed(0)
    share = torch.stack([(node() != 0).double().mean() for _ in range(50)]).mean()
    assert float(share) == pytest.approx(0.5, abs=0.02)
    node.zero_grad()
    node().sum().backward()
    assert_close(node.logit.grad, node.weight.detach() * 0.25)  # ∂σ/∂s at s = 0
    assert lifted.penalty().item() == pytest.approx(0.1 * 600 * 0.5)
    options = [g for g in groups(lifted, {"*": {}}) if g.get("lr_factor") == 200.0]
    assert [id(p) for g in options for p in g["params"]] == [id(node.logit)]


def test_bernoulli_projection_draws_by_the_learned_chances():
    lift = StochasticMask(s_init=0.0)
    lifted = lift.lift(task())
    with torch.no_grad():
        lifted.nodes["model/weight"].logit[:10] = 50.0
        lifted.nodes["model/weight"].logit[10:] = -torch.inf
    hard = lift.project(lifted).model.weight
    assert torch.equal(hard[:10], task().model.weight[:10])
    assert not hard[10:].any()


@pytest.mark.parametrize("granularity", ["weight", "channel"])
def test_slimming_starts_at_the_weights_and_drops_the_least_factors(granularity):
    lift = Slim(sparsity=0.5, granularity=granularity, strength=0.01)
    plain = task()
    lifted = lift.lift(plain)
    node = lifted.nodes["model/weight"]
    assert torch.equal(node(), plain.model.weight)
    assert lifted.penalty().item() == pytest.approx(0.01 * node.factor.numel())
    with torch.no_grad():
        node.factor.copy_(torch.rand_like(node.factor) - 0.5)
    hard = lift.project(lifted).model.weight
    assert int((hard == 0).sum()) == 300
    kept = node.factor.abs().expand_as(hard)[hard != 0]
    assert kept.min() >= node.factor.abs().expand_as(hard)[hard == 0].max()
    assert_close(hard[hard != 0], (node.weight * node.factor)[hard != 0])
    with pytest.raises(OrderError):
        lift.project(plain)


def test_soft_threshold_is_the_proximal_map():
    """sign(v) max(0, |v| − τ) minimizes ½(w − v)² + τ|w|."""
    torch.manual_seed(0)
    v = torch.randn(20, 10).double()
    w, tau = node_of(SoftThreshold(s_init=0.2), v)().detach(), 1 / (1 + math.exp(-0.2))
    objective = lambda w: 0.5 * (w - v).square() + tau * w.abs()
    for step in (-1e-3, 1e-3):
        assert bool((objective(w) <= objective(w + step)).all())
    lift = SoftThreshold(s_init=-2.0)
    lifted = lift.lift(task())
    hard = lift.project(lifted).model.weight
    cut = 1 / (1 + math.exp(2.0))
    assert torch.equal(hard == 0, task().model.weight.abs() <= cut)
