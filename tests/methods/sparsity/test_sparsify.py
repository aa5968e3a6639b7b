"""Continuous sparsification and its targets: what is promised is got."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import torchlift as tl
from methods.sparsity.sparse_runs import SGD, Scripted, data, model, run, zeros
from torchlift.core import Task, anneal
from torchlift.deploy import save, shrink
from torchlift.errors import TorchliftError
from torchlift.lifts import SoftMask
from torchlift.recipes import (
    ContinuousSparsification,
    MagnitudePruning,
    TicketSearch,
)


@pytest.mark.parametrize("target", [0.5, 0.9])
@pytest.mark.parametrize("variant", ["thesis", "published"])
@pytest.mark.parametrize("optimizer", [SGD, partial(torch.optim.AdamW, lr=1e-3)])
def test_the_target_sparsity_is_reached(target, variant, optimizer):
    result = run(ContinuousSparsification(sparsity=target, variant=variant), optimizer=optimizer)
    assert zeros(result.model) == pytest.approx(target, abs=0.002)
    assert result.history[-1]["sparsity_target"] == target
    phases = [row["phase"] for row in result.history]
    assert phases.count("lifted") == 5  # 0.8 × 6 epochs
    assert "projected_metric" in result.history[0]


def test_other_targets_and_their_limits():
    net = model()
    total = sum(p.numel() for p in net.parameters())
    result = run(ContinuousSparsification(parameters=150))
    nonzero = sum(int((p != 0).sum()) for p in result.model.parameters() if p.ndim > 1)
    left = nonzero + sum(p.numel() for p in net.parameters() if p.ndim < 2)
    assert left == pytest.approx(150, abs=2)
    assert (result.history[-1]["parameters_target"], result.history[-1]["parameters"]) == (150, left)
    with pytest.raises(TorchliftError, match="it leaves 98 to"):
        run(ContinuousSparsification(parameters=20))
    with pytest.raises(TorchliftError, match="one target"):
        ContinuousSparsification(sparsity=0.5, macs=100)
    assert total > 150


def test_a_target_in_bytes_is_met_by_the_file(tmp_path):
    wide = nn.Sequential(nn.Linear(8, 400), nn.ReLU(), nn.Linear(400, 40), nn.ReLU(), nn.Linear(40, 2))
    result = run(ContinuousSparsification(bytes=16_000), epochs=2, net=wide)
    size = save(result, tmp_path / "m.tl")
    assert size == pytest.approx(16_000, rel=0.02)
    assert result.history[-1]["bytes_target"] == 16_000
    assert result.history[-1]["bytes"] == pytest.approx(size, abs=16)


def test_a_target_in_macs_counts_positions():
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.Flatten(),
        nn.Linear(256, 2),
    )
    x = torch.randn(64, 1, 8, 8)
    uses = {"0.weight": 64.0, "2.weight": 64.0, "4.weight": 1.0}
    settings = {"optimizer": SGD, "epochs": 2, "progress": False, "batch_size": 32}
    result = tl.fit(net, (x, torch.arange(64) % 2), recipe=ContinuousSparsification(macs=3000), **settings)
    left = sum(uses[n] * int((p != 0).sum()) for n, p in result.model.named_parameters() if p.ndim > 1)
    assert left == pytest.approx(3000, abs=64)
    assert (result.history[-1]["macs_target"], result.history[-1]["macs"]) == (3000, left)


def test_logits_move_faster_in_runs_too_short_for_the_weights_rate():
    """(2000 / steps)², of the steps under the mask: three quarters of six epochs of a hundred."""
    for recipe, rate in (
        (ContinuousSparsification(sparsity=0.5), (2000 / 450) ** 2),
        (ContinuousSparsification(sparsity=0.5, logit_rate=3.0), 3.0),
        (ContinuousSparsification(s_init=0.01), 1.0),
    ):
        recipe(Task(model()), fit := Scripted())
        assert fit.settings[0]["groups"]["*.logit"]["lr_factor"] == pytest.approx(rate)
    seen = []
    tl.fit(
        model(),
        data(),
        recipe=lambda task, fit: seen.append(fit.steps) or task,
        batch_size=64,
        progress=False,
    )
    assert seen == [4]


def test_a_shorter_ramp_reaches_the_target_earlier():
    actual = {}
    for ramp in (0.25, 0.75):
        task = Task(nn.Linear(20, 10), "mse")
        lifted = SoftMask(sparsity=0.9, ramp=ramp).lift(task)
        with torch.no_grad():
            lifted.nodes["model/weight"].logit.normal_()
        gone = []
        for t in (0.125, 0.25, 0.75, 1.0):
            anneal(lifted, t)
            gone.append(float((~lifted.nodes["model/weight"].switches.open()).float().mean()))
        actual[ramp] = gone
    assert actual[0.25] == pytest.approx([0.9 * (1 - 0.5**3), 0.9, 0.9, 0.9], abs=0.01)
    assert actual[0.75] == pytest.approx(
        [0.9 * (1 - (5 / 6) ** 3), 0.9 * (1 - (2 / 3) ** 3), 0.9, 0.9], abs=0.01
    )
    with pytest.raises(TorchliftError, match=r"in \(0, 1\], got 0"):
        ContinuousSparsification(sparsity=0.5, ramp=0)


def test_what_was_got_is_told_without_fine_tuning_too():
    result = run(ContinuousSparsification(parameters=150, finetune=0.0), epochs=2)
    assert result.history[-1]["parameters"] == pytest.approx(150, abs=2)


def test_a_target_starts_at_the_weights_unless_told_otherwise():
    fit, plain = Scripted(), Task(model())
    ContinuousSparsification(sparsity=0.5)(plain, fit)
    assert_close(soft_weight(fit.first), plain.model[0].weight)
    ContinuousSparsification(sparsity=0.5, rescale=False)(plain, again := Scripted())
    assert_close(soft_weight(again.first), 0.5 * plain.model[0].weight)


def soft_weight(lifted) -> torch.Tensor:
    return lifted.nodes["model/0/weight"]()


def test_channels_masked_by_the_recipe_are_really_removed():
    result = run(ContinuousSparsification(granularity="channel", sparsity=0.6), epochs=4)
    x = data()[0]
    small = shrink(result.model, x[:4])
    assert small[0].out_features == pytest.approx(13, abs=1)
    assert_close(small.eval()(x), result.model.eval()(x), atol=1e-6, rtol=0)


def test_no_target_follows_s_init_and_says_when_it_collapses():
    with pytest.warns(UserWarning, match="lower s_init"):
        run(ContinuousSparsification(s_init=5.0), epochs=1)
    with pytest.warns(UserWarning, match="raise s_init"):
        run(ContinuousSparsification(s_init=-5.0), epochs=1)


def test_no_recipe_leaves_a_layer_without_a_weight():
    """The first layer's gates close of themselves; its best weight stays, and the zeros are held."""
    with pytest.warns(UserWarning, match=r"every gate of model.0.weight was closed; the best"):
        small = ContinuousSparsification(s_init=0.02, finetune=0.0)(Task(model()), Closing())
    assert int((small.model[0].weight != 0).sum()) == 1
    net, still = model(), partial(torch.optim.SGD, lr=0.0)
    nn.init.constant_(net[0].weight, 1e-6)
    with pytest.warns(UserWarning, match=r"all of model.0.weight would go"):
        small = run(MagnitudePruning(sparsity=0.9), epochs=1, net=net, optimizer=still)
    assert int((small.model[0].weight != 0).sum()) == 1


class Closing:
    """A fit that closes the gates of the first layer."""

    epochs, steps = 1.0, 1

    def __call__(self, problem, **settings):
        with torch.no_grad():
            problem.nodes["model/0/weight"].logit.fill_(-1.0)


def test_zeros_survive_any_later_fit():
    first = run(ContinuousSparsification(sparsity=0.8))
    pruned = [p == 0 for p in first.model.parameters() if p.ndim > 1]
    for optimizer in (
        partial(torch.optim.AdamW, lr=0.1),
        partial(torch.optim.SGD, lr=0.5, momentum=0.9, weight_decay=0.1),
    ):
        later = tl.fit(first.model, data(), epochs=2, optimizer=optimizer, progress=False)
        for before, after in zip(pruned, [p for p in later.model.parameters() if p.ndim > 1], strict=True):
            assert torch.equal(after == 0, before)


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("recipe", [ContinuousSparsification(sparsity=0.8), TicketSearch(rounds=2, rewind=1)])
def test_recipes_resume_bit_for_bit(recipe, tmp_path):
    """A run that died in its second fit and is resumed equals one that never did."""
    whole = run(recipe, epochs=3, out=tmp_path / "whole")
    first = whole.history[0]["phase"]

    def dying(row):
        if row["phase"] != first:
            raise StoppedError

    with pytest.raises(StoppedError):
        run(recipe, epochs=3, out=tmp_path / "again", listener=dying)
    again = run(recipe, epochs=3, out=tmp_path / "again", resume=True)
    for a, b in zip(whole.model.state_dict().values(), again.model.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_channels_are_masked_layer_by_layer_where_no_graph_can_be_followed(monkeypatch):
    def untraceable(*_):
        raise RuntimeError("no way through")

    monkeypatch.setattr("torchlift.deploy.plan", untraceable)
    with pytest.warns(UserWarning, match=r"cannot be followed \(no way through\): channels are masked layer"):
        result = run(ContinuousSparsification(granularity="channel", sparsity=0.5, where="0.*"), epochs=2)
    rows = (result.model[0].weight == 0).all(1)
    assert int(rows.sum()) == 16
