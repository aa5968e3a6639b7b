"""Continuous sparsification in the coordinates of an exact lift: the given network is delivered, pruned."""

import copy
import dataclasses
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import torchlift as tl
from methods.sparsity.sparse_runs import data, run
from torchlift.core import Task, nodes
from torchlift.errors import TorchliftError
from torchlift.lifts import Normalize, Standardize
from torchlift.recipes import Chain, ContinuousSparsification, Inside, Smol


def plain() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 2))


@pytest.mark.parametrize("finetune", [0.0, 0.5])
@pytest.mark.parametrize("lift", [Normalize(), Standardize()], ids=repr)
def test_the_asked_zeros_in_a_plain_network_that_scores_as_reported(lift, finetune):
    recipe = ContinuousSparsification(sparsity=0.7, where="2.weight", finetune=finetune)
    result = run(Inside(lift, recipe), net=plain())
    assert not list(nodes(result.model))
    assert list(result.model.state_dict()) == list(plain().state_dict())
    assert float((result.model[2].weight == 0).float().mean()) == pytest.approx(0.7, abs=0.003)
    assert bool(result.model[0].weight.all())
    assert result.history[-1]["sparsity_target"] == 0.7
    x, y = data(64)
    loss = nn.functional.cross_entropy(result.model.eval()(x), y)
    assert_close(loss.item(), result.scores["valid"].loss, rtol=1e-5, atol=1e-6)


def test_the_network_is_normalized_while_its_weights_are_masked():
    """The weights differ from those of a run without it, and the lift alone is what Normalize trains."""
    free = ContinuousSparsification(sparsity=0.0, finetune=0.0, strength=0.0)
    masked = Inside(Normalize(), free)
    mine, without, folded = (
        run(one, net=plain()).model[0].weight.detach() for one in (masked, free, Normalize())
    )
    assert float((mine - folded).norm()) < float((mine - without).norm())


def test_zeros_stay_through_bits(tmp_path):
    prune = Inside(Normalize(), ContinuousSparsification(sparsity=0.7, where="2.weight", finetune=0.0))
    result = run(Chain({"prune": prune, "bits": Smol(bits=3.0)}, restart=False), net=plain())
    assert float((result.model[2].weight == 0).float().mean()) >= 0.69
    tl.deploy.save(result.model, tmp_path / "m.tl")
    loaded = tl.deploy.load(tmp_path / "m.tl")
    for a, b in zip(result.model.parameters(), loaded.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_model_that_comes_pruned_keeps_its_zeros():
    net = plain()
    with torch.no_grad():
        net[0].weight.mul_(torch.rand(net[0].weight.shape) > 0.5)
    gone = copy.deepcopy(net[0].weight == 0)
    result = run(Inside(Normalize(), ContinuousSparsification(sparsity=0.5, where="2.weight")), net=net)
    assert bool((result.model[0].weight[gone] == 0).all())


@pytest.mark.parametrize(
    "options", [{"granularity": "channel"}, {"parameters": 100}, {"bytes": 4000}, {"macs": 1000.0}]
)
def test_targets_of_another_model_raise(options):
    with pytest.raises(TorchliftError, match="would be those of the lifted model"):
        run(Inside(Normalize(), ContinuousSparsification(**options)), net=plain())


def test_what_the_lift_cannot_take_is_said():
    bare = nn.Sequential(nn.Linear(8, 4, bias=False), nn.ReLU(), nn.Linear(4, 2, bias=False))
    recipe = Inside(Normalize(), ContinuousSparsification(sparsity=0.5))
    reason = recipe.accepts(Task(bare, "cross_entropy"))
    assert reason is not None
    assert "without a bias" in reason
    with pytest.raises(TorchliftError, match="without a bias"):
        run(recipe, net=bare)


@pytest.mark.parametrize("make", [torch.optim.AdamW, tl.optim.Muon])
def test_logits_may_have_sgd_of_their_own(make):
    """At a rate of zero they stay alike, and the weights decide alone which of them go."""
    still = ContinuousSparsification(sparsity=0.5, where="2.weight", finetune=0.0, logit_step=0.0)
    moved = dataclasses.replace(still, logit_step=10.0)
    optimizer = partial(make, lr=0.01)
    a, b = (run(one, net=plain(), optimizer=optimizer).model[2].weight == 0 for one in (still, moved))
    assert int(a.sum()) == int(b.sum())
    assert not torch.equal(a, b)


def test_the_logits_have_one_rate():
    with pytest.raises(TorchliftError, match=r"logit_rate= .* or logit_step="):
        ContinuousSparsification(sparsity=0.5, logit_rate=1.0, logit_step=1.0)
