"""Zeros made on purpose stay; zeros of an initialization learn."""

import pytest
import torch
from torch import nn

import torchlift as tl
from torchlift.core import Task, record_pruned
from torchlift.lifts import SoftMask


def pruned_linear() -> nn.Linear:
    torch.manual_seed(0)
    layer = nn.Linear(6, 4)
    with torch.no_grad():
        layer.weight[torch.rand(4, 6) < 0.5] = 0
    return layer


@pytest.mark.parametrize("init", [nn.init.eye_, nn.init.zeros_, nn.init.ones_])
def test_initializations_do_not_look_pruned(init) -> None:
    layer = nn.Linear(8, 8)
    init(layer.weight)
    assert record_pruned(layer) == []


def test_dirac_padding_and_bias_do_not_look_pruned() -> None:
    conv = nn.Conv2d(4, 4, 3)
    nn.init.dirac_(conv.weight)
    nn.init.zeros_(conv.bias)
    assert record_pruned(conv) == []
    assert record_pruned(nn.Embedding(5, 3, padding_idx=0)) == []
    assert record_pruned(pruned_linear()) == ["weight"]


@pytest.mark.parametrize("recipe", [None, tl.lifts.Expand(), tl.lifts.Normalize(), tl.recipes.Rotated()])
def test_an_identity_learns_everywhere(recipe) -> None:
    net = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))
    nn.init.eye_(net[0].weight)
    x = torch.randn(96, 16)
    result = tl.fit(net, (x, torch.arange(96) % 2), recipe=recipe, epochs=3, progress=False)
    assert int((result.model[0].weight != 0).sum()) == 256


def test_what_was_pruned_counts_towards_a_target() -> None:
    torch.manual_seed(0)
    task = Task(nn.Sequential(nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 2)))
    with torch.no_grad():
        task.model[0].weight[torch.rand(20, 20) < 0.5] = 0
    zeros = task.model[0].weight == 0
    record_pruned(task)
    mask = SoftMask(where="0.weight", sparsity=0.7)
    weight = mask.project(mask.lift(task)).model[0].weight
    assert int((weight == 0).sum()) == 280
    assert bool((weight[zeros] == 0).all())


def test_keep_zeros_false_lets_everything_learn() -> None:
    net = nn.Sequential(pruned_linear())
    x = torch.randn(64, 6)
    data = (x, torch.arange(64) % 4)
    kept, free = (
        tl.fit(net, data, epochs=2, progress=False, keep_zeros=keep).model for keep in (True, False)
    )
    assert torch.equal(kept[0].weight == 0, net[0].weight == 0)
    assert bool((free[0].weight != 0).all())


def test_a_layer_pruned_to_one_weight_stays_so_through_the_next_fit() -> None:
    net = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))
    x = torch.randn(64, 6)
    data = (x, torch.arange(64) % 2)
    recipe = tl.recipes.MagnitudePruning(0.95, where="0.weight")
    first = tl.fit(net, data, recipe=recipe, epochs=2, progress=False)
    assert int((first.model[0].weight != 0).sum()) == 1
    zeros = [p == 0 for p in first.model.parameters()]
    again = tl.fit(first.model, data, epochs=2, progress=False)
    for parameter, zero in zip(again.model.parameters(), zeros, strict=True):
        if parameter.ndim > 1:
            assert torch.equal(parameter == 0, zero)
