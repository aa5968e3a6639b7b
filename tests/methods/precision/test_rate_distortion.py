"""Rate and distortion: the code's length by hand, its gradients, its steering, and targets that are met."""

import math

import pytest
import torch
from torch import nn

import torchlift as tl
from torchlift.core import Task, record_pruned
from torchlift.errors import TorchliftError
from torchlift.lifts import CodeLength, Normalize
from torchlift.methods.precision.code_length import (
    SEEN,
    PricedLevels,
    RateControl,
    code_bits_per_weight,
    priced,
)
from torchlift.recipes import Inside, RateDistortion


def data(seed: int, n: int = 256):
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, 0] * x[:, 1] > 0).long()


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2))


def node(values: list[float], step: float = 1.0, bits: int = 3, strength: float = 1.0) -> PricedLevels:
    """Weights at a known step, their code read."""
    made_of = PricedLevels(torch.tensor([values], dtype=torch.float64), bits, strength)
    with torch.no_grad():
        made_of.log_step.fill_(math.log(step))
        made_of.constrain()
    return made_of


def test_the_code_by_hand() -> None:
    """Levels 0 0 0 1 of seven, each seen half a time before: ℓ = log₂(7.5 / (count + 0.5))."""
    priced_weight = node([0.1, -0.2, 0.4, 1.2])
    expected = [math.log2((4 + 7 * SEEN) / (count + SEEN)) for count in (0, 0, 0, 3, 1, 0, 0)]
    assert priced_weight.lengths.tolist() == pytest.approx(expected)
    assert priced_weight.code_bits() == pytest.approx(3 * math.log2(4 / 3) + math.log2(4))
    below, zero, one, two = expected[2:6]
    line = [zero + 0.1 * (one - zero), below + 0.8 * (zero - below), zero + 0.4 * (one - zero)]
    assert priced_weight.penalty().item() == pytest.approx(sum(line) + one + 0.2 * (two - one))


def test_a_weight_is_drawn_to_the_cheaper_neighbor() -> None:
    """The gradient between two levels is their difference over the step, on both sides of a line."""
    priced_weight = node([0.3, 0.3, 0.1, 0.6], step=0.5)
    lengths = priced_weight.lengths
    (slope,) = torch.autograd.grad(priced_weight.penalty(), priced_weight.weight)
    first = float(lengths[4] - lengths[3]) / 0.5
    assert slope[0, :3].tolist() == pytest.approx([first] * 3)
    assert float(slope[0, 3]) == pytest.approx(float(lengths[5] - lengths[4]) / 0.5)


def test_the_step_has_the_gradient_of_lsq() -> None:
    """d/ds of s [v/s], roundings fixed: [v/s] − v/s inside, ±h beyond; times s for its logarithm."""
    priced_weight = node([0.26, -0.9, 9.0], step=0.5)
    out = priced_weight()
    assert out.tolist() == [[0.5, -1.0, 1.5]]
    for entry, ratio in enumerate((0.52, -1.8, 3.0)):
        (slope,) = torch.autograd.grad(out[0, entry], priced_weight.log_step, retain_graph=True)
        level = max(-3, min(3, round(ratio)))
        inside = level - ratio if abs(ratio) < 3 else level
        assert float(slope) == pytest.approx(0.5 * inside)


def test_steps_shrink_until_a_weight_would_be_clipped() -> None:
    priced_weight = node([0.4, 3.0], step=2.0)
    priced_weight.shrink_step(-0.5)
    assert priced_weight.log_step.exp().item() == pytest.approx(2 * math.exp(-0.5))
    priced_weight.shrink_step(-9.0)
    assert priced_weight.log_step.exp().item() == pytest.approx(1.0)
    with torch.no_grad():
        priced_weight.log_step.fill_(math.log(0.1))
    priced_weight.shrink_step(-1.0)
    assert priced_weight.log_step.exp().item() == pytest.approx(0.1)


def test_the_price_follows_the_course() -> None:
    """Up while the code is too long for the course, down while it is too short; once at each instant."""
    nodes = [node([0.1, 0.9, -1.1, 2.2])]
    goals = [code_bits_per_weight(nodes) / 4]
    control = RateControl(nodes, lambda: goals[-1])
    start = float(control.value)
    control.turn(0.0)
    control.turn(0.001)
    assert float(control.value) == pytest.approx(start)
    control.turn(0.3)
    assert float(control.value) == pytest.approx(1.25 * start)
    with torch.no_grad():
        nodes[0].weight.zero_()
    control.turn(0.35)
    assert float(control.value) == pytest.approx(1.25 * 0.8 * start)


def test_the_goal_is_asked_again_as_levels_change() -> None:
    """At twenty instants of a fit, and kept between them."""
    goals = [1.0]
    control = RateControl([node([0.1, 0.9, -1.1, 2.2])], lambda: goals[-1])
    goals.append(0.5)
    control.turn(0.04)
    assert float(control.goal) == 1.0
    control.turn(0.06)
    assert float(control.goal) == 0.5
    goals.append(0.25)
    control.turn(0.07)
    assert float(control.goal) == 0.5


@pytest.mark.parametrize("bits", [0.3, 1.0, 2.5])
def test_bits_are_met_in_the_levels_that_are_stored(bits: float) -> None:
    result = tl.fit(
        model(),
        data(1),
        data(2),
        recipe=RateDistortion(bits=bits),
        epochs=12,
        batch_size=32,
        progress=False,
        seed=0,
    )
    total, length = 0, 0.0
    for record in result.stored.values():
        assert record.levels is not None
        counts = record.levels.unique(return_counts=True)[1].double()
        length += float((counts * torch.log2(counts.sum() / counts)).sum())
        total += record.levels.numel()
    assert 0.5 * bits < length / total <= bits
    assert result.history[-1]["bits_target"] == bits


def test_bytes_are_met_in_the_file(tmp_path) -> None:
    recipe = Inside(Normalize(), RateDistortion(bytes=1800))
    result = tl.fit(
        model(),
        data(1),
        data(2),
        recipe=recipe,
        epochs=12,
        batch_size=32,
        progress=False,
        seed=0,
        out=tmp_path / "run",
    )
    result.save(tmp_path / "m.tl")
    size = (tmp_path / "m.tl").stat().st_size
    assert 1400 < size <= 1800
    loaded = tl.deploy.load(tmp_path / "m.tl", into=model())
    x = data(3)[0]
    assert torch.equal(loaded(x), result.model.eval()(x))


def test_a_trained_network_goes_on_where_it_is() -> None:
    result = tl.fit(
        model(),
        data(1),
        recipe=RateDistortion(bits=2.0, pretrain=0.0),
        epochs=3,
        batch_size=32,
        progress=False,
    )
    assert {row["phase"] for row in result.history} == {"coded"}


def test_what_was_pruned_stays_at_zero() -> None:
    net = model()
    mask = torch.rand(net[2].weight.shape, generator=torch.Generator().manual_seed(0)) > 0.5
    with torch.no_grad():
        net[2].weight.mul_(mask)
    record_pruned(net)
    result = tl.fit(net, data(1), recipe=RateDistortion(bits=3.0), epochs=4, batch_size=32, progress=False)
    assert not result.model[2].weight[~mask].any()
    assert result.stored["2.weight"].levels is not None
    assert not result.stored["2.weight"].levels[~mask].any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "needs a target"),
        ({"bits": 1.0, "bytes": 900}, "one target"),
        ({"bits": 0.0}, "positive number"),
        ({"bits": 11}, r"lie in \[0.02, 10\]"),
        ({"bits": 1.0, "pretrain": 1.0}, "fraction of the budget"),
        ({"bits": 1.0, "levels": 1}, "from 2 to 12"),
    ],
)
def test_settings_that_make_no_sense(settings, message) -> None:
    with pytest.raises(TorchliftError, match=message):
        RateDistortion(**settings)


def test_too_few_bytes_are_an_error_before_training() -> None:
    with pytest.raises(TorchliftError, match="bytes are the least"):
        tl.fit(model(), data(1), recipe=RateDistortion(bytes=300), epochs=1, progress=False)


def test_the_lift_prices_every_weight_it_picks() -> None:
    lifted = CodeLength("0.weight", strength=0.5).lift(Task(model(), "cross_entropy"))
    assert len(priced(lifted)) == 1
    assert lifted.penalty().item() == pytest.approx(priced(lifted)[0].penalty().item())
