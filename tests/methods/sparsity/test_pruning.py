"""Pruning by magnitude: at once, gradually, and iteratively (Algorithm 3)."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import torchlift as tl
from methods.sparsity.sparse_runs import Scripted, model, run, zeros
from torchlift.core import Task
from torchlift.errors import TorchliftError
from torchlift.recipes import (
    IterativeMagnitude,
    MagnitudePruning,
)


def test_imp_follows_algorithm_3():
    fit, plain = Scripted(), Task(model())
    start = plain.model[0].weight.detach().clone()
    IterativeMagnitude(rounds=2, fraction=0.25, rewind=1)(plain, fit)
    after = Task(model())
    after.load_state_dict(fit.seen[1][1])
    assert zeros(after.model) == pytest.approx(0.25, abs=0.01)
    weight = after.model[0].weight.detach()
    assert_close(weight[weight != 0], (start + 1)[weight != 0])
    assert_close(after.model[1].running_mean, torch.ones(32))
    continued = Scripted()
    IterativeMagnitude(rounds=2, fraction=0.25)(Task(model()), continued)
    weight = continued.seen[1][1]["model.0.weight"]
    assert_close(weight[weight != 0], (start + 2)[weight != 0])


@pytest.mark.filterwarnings("ignore:all of")
def test_imp_reaches_one_minus_rate_to_the_rounds():
    result = run(IterativeMagnitude(rounds=3, fraction=0.5, rewind=1), epochs=8)
    assert zeros(result.model) == pytest.approx(1 - 0.5**3, abs=0.01)


def test_imp_takes_a_rate_per_kind_of_layer():
    recipe = IterativeMagnitude(rounds=2, fraction={"0.*": 0.5, "*": 0.25}, rewind=1)
    result = run(recipe, epochs=6)
    parts = [float((result.model[k].weight == 0).double().mean()) for k in (0, 3)]
    assert parts == pytest.approx([0.75, 1 - 0.75**2], abs=0.02)
    assert result.history[-1]["sparsity_target"] == pytest.approx(zeros(result.model), abs=0.01)
    with pytest.raises(TorchliftError, match="0 < fraction < 1"):
        IterativeMagnitude(fraction={"*": 1.5})


@pytest.mark.parametrize("scope", ["global", "local"])
def test_the_smallest_go(scope):
    still = partial(torch.optim.SGD, lr=0.0)
    small = run(MagnitudePruning(sparsity=0.5, scope=scope), epochs=1, optimizer=still).model
    assert zeros(small) == pytest.approx(0.5, abs=0.005)
    before, after = ([net[k].weight.detach() for k in (0, 3)] for net in (model(), small))
    kept = [old[new != 0].abs() for old, new in zip(before, after, strict=True)]
    gone = [old[new == 0].abs() for old, new in zip(before, after, strict=True)]
    if scope == "local":
        assert [float((new == 0).double().mean()) for new in after] == pytest.approx([0.5, 0.5], abs=0.01)
        assert all(out.max() <= left.min() for out, left in zip(gone, kept, strict=True))
    else:
        assert torch.cat(gone).max() <= torch.cat(kept).min()


@pytest.mark.parametrize("share", [0.1, 0.4, 0.9])
def test_of_equal_weights_the_first_go(share):
    """Of two million weights, as a stable sort has them."""
    layer = nn.Linear(2048, 1000, bias=False)
    sizes = torch.randint(1, 4, layer.weight.shape)
    with torch.no_grad():
        layer.weight.copy_(sizes * torch.randn_like(layer.weight).sign())
    still = partial(torch.optim.SGD, lr=0.0)
    settings = {"epochs": 1, "optimizer": still, "progress": False, "loss": lambda net, x: net(x[0]).mean()}
    data = (torch.randn(4, 2048), torch.zeros(4))
    small = tl.fit(nn.Sequential(layer), data, recipe=MagnitudePruning(sparsity=share), **settings).model
    order = torch.argsort(sizes.flatten(), stable=True)
    expected = torch.zeros(sizes.numel(), dtype=torch.bool)
    expected[order[: round(share * sizes.numel())]] = True
    assert torch.equal(small[0].weight.flatten() == 0, expected)


def test_gradual_magnitude_follows_the_cubic_ramp():
    fit = Scripted()
    MagnitudePruning(sparsity=0.8, steps=4)(Task(model()), fit)
    achieved = []
    for _, state in fit.seen[1:]:
        plain = Task(model())
        plain.load_state_dict(state)
        achieved.append(zeros(plain.model))
    assert achieved == pytest.approx([0.8 * (1 - (1 - k / 4) ** 3) for k in (1, 2, 3, 4)], abs=0.02)
    spans = [s["share"] for s in fit.settings]
    assert sum(spans) == pytest.approx(1.0)


def test_a_schedule_spans_the_whole_recipe():
    fit = Scripted()
    MagnitudePruning(sparsity=0.8, steps=2, schedule=lambda t: 1 - t)(Task(model()), fit)
    edges = [(s["schedule"](0.0), s["schedule"](1.0)) for s in fit.settings]
    assert edges == [(1.0, 0.75), (0.75, 0.5), (0.5, 0.0)]
