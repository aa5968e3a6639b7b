"""Ticket search (Algorithm 2) and its stochastic and sequential rivals, round by round."""

import pytest
import torch
from torch.testing import assert_close

from methods.sparsity.sparse_runs import Scripted, model, run, zeros
from torchlift.core import Task
from torchlift.errors import TorchliftError
from torchlift.recipes import (
    IterativeMagnitude,
    IterativeStochastic,
    SequentialSparsification,
    TicketSearch,
)


@pytest.mark.parametrize(("between", "factor"), [("thesis", 200.0), ("published", 1.0)])
def test_ticket_search_follows_algorithm_2(between, factor):
    """Weights go on between rounds, s is lowered, the ticket starts from epoch k with its statistics."""
    fit, plain = Scripted(), Task(model())
    start = plain.model[0].weight.detach().clone()
    ticket = TicketSearch(rounds=2, rewind=1, between=between, s_init=0.02)(plain, fit)
    names = [name for name, _ in fit.seen]
    assert names == ["round 1", "round 2", "ticket"]
    second = fit.seen[1][1]
    assert_close(second["nodes.model/0/weight.weight"], start + 2)
    logit = second["nodes.model/0/weight.switches.logit"]
    assert_close(logit, (factor * torch.linspace(-0.05, 0.1, 256).view(32, 8)).clamp(max=0.02))
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
