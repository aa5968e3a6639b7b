"""Continuous sparsification, its targets, tickets and rivals: trajectories and promises."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import torchlift as tl
from torchlift.core import Task, TorchliftError
from torchlift.deploy import save, shrink
from torchlift.recipes import (
    ContinuousSparsification,
    IterativeMagnitude,
    IterativeStochastic,
    MagnitudePruning,
    SequentialSparsification,
    TicketSearch,
)
from torchlift.recipes.pruning import dropped, magnitudes, sparsity, weights
from torchlift.recipes.targets import uses_per_weight
from torchlift.recipes.tickets import published_rule, thesis_rule
from torchlift.train import Fit

SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)


def data(count: int = 256) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, 8, generator=generator)
    return x, (x[:, 0] * x[:, 1] > 0).long()


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))


def run(recipe, epochs: float = 6, net: nn.Module | None = None, **settings):
    options = {"optimizer": SGD, "batch_size": 64, "progress": False} | settings
    return tl.fit(net or model(), data(), data(64), recipe=recipe, epochs=epochs, **options)


def zeros(net: nn.Module, where: str = "*weight") -> float:
    return sparsity(weights(Task(net), where))


@pytest.mark.parametrize("asked", [0.5, 0.9])
@pytest.mark.parametrize("variant", ["thesis", "published"])
@pytest.mark.parametrize("optimizer", [SGD, partial(torch.optim.AdamW, lr=1e-3)])
def test_the_asked_sparsity_is_got(asked, variant, optimizer):
    result = run(ContinuousSparsification(sparsity=asked, variant=variant), optimizer=optimizer)
    assert zeros(result.model) == pytest.approx(asked, abs=0.002)
    assert result.history[-1]["sparsity_asked"] == asked
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
    assert (result.history[-1]["parameters_asked"], result.history[-1]["parameters"]) == (150, left)
    with pytest.raises(TorchliftError, match="can leave 98 to"):
        run(ContinuousSparsification(parameters=20))
    with pytest.raises(TorchliftError, match="one target"):
        ContinuousSparsification(sparsity=0.5, macs=100)
    assert total > 150


def test_a_target_in_bytes_is_met_by_the_file(tmp_path):
    wide = nn.Sequential(nn.Linear(8, 400), nn.ReLU(), nn.Linear(400, 40), nn.ReLU(), nn.Linear(40, 2))
    result = run(ContinuousSparsification(bytes=16_000), epochs=2, net=wide)
    size = save(result.model, tmp_path / "m.tl")
    assert size == pytest.approx(16_000, rel=0.02)
    assert result.history[-1]["bytes_asked"] == 16_000
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
    uses = uses_per_weight(net, x[:3])
    assert uses == {"0.weight": 64.0, "2.weight": 64.0, "4.weight": 1.0}
    settings = {"optimizer": SGD, "epochs": 2, "progress": False, "batch_size": 32}
    result = tl.fit(net, (x, torch.arange(64) % 2), recipe=ContinuousSparsification(macs=3000), **settings)
    left = sum(uses[n] * int((p != 0).sum()) for n, p in result.model.named_parameters() if p.ndim > 1)
    assert left == pytest.approx(3000, abs=64)
    assert (result.history[-1]["macs_asked"], result.history[-1]["macs"]) == (3000, left)


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
    task = Task(model())
    nn.init.constant_(task.model[0].weight, 1e-6)
    with pytest.warns(UserWarning, match=r"all of model.0.weight would go"):
        small = dropped(task, magnitudes(weights(task, "*weight")), 0.9)
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


def test_rules_between_rounds():
    s = torch.tensor([-0.1, -0.001, 0.0, 0.02, 0.5])
    assert_close(thesis_rule(s, 200.0, 0.05), torch.tensor([-20.0, -0.2, 0.0, 0.05, 0.05]))
    assert_close(published_rule(s, 200.0, 0.05), torch.tensor([-0.1, -0.001, 0.0, 0.02, 0.05]))


class Scripted:
    """A fit that moves weights and logits by a fixed amount and keeps what it is asked to remember."""

    epochs = 6.0
    steps = 100

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict]] = []
        self.settings: list[dict] = []
        self.first = None

    def __call__(self, problem, *, name, remember=(), **settings):
        self.settings.append({"name": name, **settings})
        self.seen.append((name, copy.deepcopy(problem.state_dict())))
        self.first = self.first or copy.deepcopy(problem)
        kept = {}
        with torch.no_grad():
            for key, parameter in problem.named_parameters():
                if "logit" in key:
                    parameter.copy_(torch.linspace(-0.05, 0.1, parameter.numel()).view_as(parameter))
                else:
                    parameter.add_(1.0)
            for buffer in problem.buffers():
                if buffer.ndim == 1:
                    buffer.add_(1.0)
            for epoch in remember:
                kept[epoch] = copy.deepcopy(problem.state_dict())
            for key, parameter in problem.named_parameters():
                if "logit" not in key:
                    parameter.add_(1.0)
        return type("Fitted", (), {"remembered": kept, "optimizer": {}, "name": name})()

    def batches(self):
        yield data(4)


@pytest.mark.parametrize(("between", "low"), [("thesis", -10.0), ("published", -0.05)])
def test_ticket_search_follows_algorithm_2(between, low):
    """Weights go on between rounds, s is lowered, the ticket starts from epoch k with its statistics."""
    fit, plain = Scripted(), Task(model())
    start = plain.model[0].weight.detach().clone()
    ticket = TicketSearch(rounds=2, rewind=1, between=between, s_init=0.02)(plain, fit)
    names = [name for name, _ in fit.seen]
    assert names == ["round 1", "round 2", "ticket"]
    second = fit.seen[1][1]
    assert_close(second["nodes.model/0/weight.weight"], start + 2)
    logit = second["nodes.model/0/weight.switches.logit"]
    assert float(logit.min()) == pytest.approx(low)
    assert float(logit.max()) == pytest.approx(0.02)
    assert fit.settings[1]["warm"].name == "round 1"
    begun = fit.seen[2][1]
    kept = torch.linspace(-0.05, 0.1, 256).view(32, 8) >= 0
    assert_close(begun["model.0.weight"], torch.where(kept, start + 1, 0.0))
    assert_close(begun["model.1.running_mean"], torch.ones(32))  # epoch 1, not the end
    assert_close(
        ticket.model[0].weight.detach()[~kept], torch.full((int((~kept).sum()),), 2.0)
    )  # held only by tl.fit


def test_ticket_search_can_restart_every_round():
    fit, plain = Scripted(), Task(model())
    start = plain.model[0].weight.detach().clone()
    TicketSearch(rounds=2, rewind=0, restart=True)(plain, fit)
    assert_close(fit.seen[1][1]["nodes.model/0/weight.weight"], start)


def test_rewinding_never_silently_does_nothing():
    with pytest.raises(TorchliftError, match="beyond the first round"):
        run(TicketSearch(rounds=2, rewind=50), epochs=3)
    with pytest.raises(TorchliftError, match="beyond the first round"):
        run(IterativeMagnitude(rounds=2, rewind=50), epochs=3)


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
    assert result.history[-1]["sparsity_asked"] == pytest.approx(zeros(result.model), abs=0.01)
    with pytest.raises(TorchliftError, match="0 < fraction < 1"):
        IterativeMagnitude(fraction={"*": 1.5})


@pytest.mark.parametrize("scope", ["global", "local"])
def test_dropping_takes_the_smallest(scope):
    plain = Task(model())
    found = weights(plain, "*weight")
    small = dropped(plain, magnitudes(found), 0.5, scope)
    after = weights(small, "*weight")
    assert sparsity(after) == pytest.approx(0.5, abs=0.005)
    for name, w in after.items():
        gone = found[name][w == 0].abs()
        if scope == "local":
            assert float((w == 0).double().mean()) == pytest.approx(0.5, abs=0.01)
            assert gone.max() <= found[name][w != 0].abs().min()
    kept = torch.cat([found[n][w != 0].abs() for n, w in after.items()])
    out = torch.cat([found[n][w == 0].abs() for n, w in after.items()])
    assert scope == "local" or out.max() <= kept.min()


def test_gradual_magnitude_follows_the_cubic_ramp():
    fit = Scripted()
    MagnitudePruning(sparsity=0.8, steps=4)(Task(model()), fit)
    got = []
    for _, state in fit.seen[1:]:
        plain = Task(model())
        plain.load_state_dict(state)
        got.append(zeros(plain.model))
    assert got == pytest.approx([0.8 * (1 - (1 - k / 4) ** 3) for k in (1, 2, 3, 4)], abs=0.02)
    spans = [s["share"] for s in fit.settings]
    assert sum(spans) == pytest.approx(1.0)


def test_a_schedule_spans_the_whole_recipe():
    fit = Scripted()
    MagnitudePruning(sparsity=0.8, steps=2, schedule=lambda t: 1 - t)(Task(model()), fit)
    edges = [(s["schedule"](0.0), s["schedule"](1.0)) for s in fit.settings]
    assert edges == [(1.0, 0.75), (0.75, 0.5), (0.5, 0.0)]


def test_sequential_drops_the_lowest_logits_round_by_round():
    result = run(SequentialSparsification(rounds=2, fraction=0.4, rewind=1), epochs=6)
    assert zeros(result.model) == pytest.approx(1 - 0.6**2, abs=0.01)


def test_stochastic_rounds_close_for_good_what_fell():
    result = run(IterativeStochastic(rounds=2, s_init=1.0, strength=1e-3), epochs=6)
    assert 0 < zeros(result.model) < 1


def test_stochastic_search_follows_algorithm_4():
    """Gates below s_init are closed for good before the next round; weights go on; the ticket is early."""
    fit, plain = Scripted(), Task(model())
    start = plain.model[0].weight.detach().clone()
    IterativeStochastic(rounds=2, rewind=1, s_init=0.02)(plain, fit)
    second = fit.seen[1][1]
    ramp = torch.linspace(-0.05, 0.1, 256).view(32, 8)
    logit = second["nodes.model/0/weight.logit"]
    assert_close(logit, torch.where(ramp < 0.02, -torch.inf, ramp))
    assert_close(second["nodes.model/0/weight.weight"], start + 2)
    ticket = fit.seen[2][1]["model.0.weight"]
    assert_close(ticket[ticket != 0], (start + 1)[ticket != 0])
    assert 0 < int((ticket == 0).sum()) < 256


def test_sequential_search_drops_the_lowest_logits_of_all_layers():
    fit, plain = Scripted(), Task(model())
    start = plain.model[0].weight.detach().clone()
    SequentialSparsification(rounds=1, fraction=0.25, rewind=1)(plain, fit)
    ticket = fit.seen[1][1]
    ramps = {
        "0": torch.linspace(-0.05, 0.1, 256).view(32, 8),
        "3": torch.linspace(-0.05, 0.1, 64).view(2, 32),
    }
    limit = torch.cat([ramp.flatten() for ramp in ramps.values()]).sort().values[80]
    for layer, ramp in ramps.items():
        assert torch.equal(ticket[f"model.{layer}.weight"] == 0, ramp < limit)
    first = ticket["model.0.weight"]
    assert_close(first[first != 0], (start + 1)[first != 0])


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("recipe", [ContinuousSparsification(sparsity=0.8), TicketSearch(rounds=2, rewind=1)])
def test_recipes_resume_bit_for_bit(recipe, tmp_path, monkeypatch):
    """A run that died in its second fit and is resumed equals one that never did."""
    whole = run(recipe, epochs=3, out=tmp_path / "whole")
    honest = Fit.__call__

    def dying(fit, problem, **settings):
        if fit.calls == 1:
            raise StoppedError
        return honest(fit, problem, **settings)

    monkeypatch.setattr(Fit, "__call__", dying)
    with pytest.raises(StoppedError):
        run(recipe, epochs=3, out=tmp_path / "again")
    monkeypatch.undo()
    again = run(recipe, epochs=3, out=tmp_path / "again", resume=True)
    for a, b in zip(whole.model.state_dict().values(), again.model.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_channels_are_masked_layer_by_layer_where_no_graph_can_be_followed(monkeypatch):
    def untraceable(*_):
        raise RuntimeError("no way through")

    monkeypatch.setattr("torchlift.deploy.channel_groups", untraceable)
    with pytest.warns(UserWarning, match=r"cannot be followed \(no way through\): channels are masked layer"):
        result = run(ContinuousSparsification(granularity="channel", sparsity=0.5, where="0.*"), epochs=2)
    rows = (result.model[0].weight == 0).all(1)
    assert int(rows.sum()) == 16
