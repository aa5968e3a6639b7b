"""Weights on a grid stay on it, each with its bits; gradients go straight through."""

from functools import partial

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

import torchlift as tl
from torchlift.core import Task, constrain, store, stored
from torchlift.core.stored import scale_rows, weight_of
from torchlift.errors import TorchliftError
from torchlift.lifts import KeepGrid, Precision
from torchlift.methods.precision.grids import as_levels, odd_levels, scaled_grid, units_of
from torchlift.methods.precision.keep_grid import OnGrid, finalize
from torchlift.testing import LAWS


def task() -> Task:
    torch.manual_seed(0)
    return Task(nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3)))


def quantized(p_init: float = 3) -> Task:
    lift = Precision(p_init=p_init, scale=0.25)  # a power of two: the same grid in double precision
    lifted = lift.lift(task())
    with torch.no_grad():
        for name, p in lifted.named_parameters():
            if name.endswith("logit"):
                p.add_(torch.randn_like(p))
    return lift.project(lifted)


def batch():
    x = torch.randn(64, 5, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


@pytest.mark.parametrize("law", LAWS)
def test_laws(law):
    LAWS[law](KeepGrid(), quantized(), batch())


@pytest.mark.parametrize(
    "optimizer", [partial(torch.optim.SGD, lr=0.5, momentum=0.9), partial(torch.optim.AdamW, lr=0.02)]
)
def test_any_training_stays_on_the_grid(optimizer):
    start = quantized()
    grids = stored(start.model)
    result = tl.fit(
        start.model, batch(), recipe=KeepGrid(), optimizer=optimizer, epochs=10, batch_size=16, progress=False
    )
    moved = 0
    for name, now in result.stored.items():
        before = grids[name]
        assert torch.equal(now.step, before.step)
        assert torch.equal(now.kept, before.kept)
        low = [record.levels & -record.levels for record in (now, before)]
        assert torch.equal(*low)  # an odd multiple of the same unit: the same bits
        assert now.levels.abs().max() < 2 ** int(before.levels.abs().max()).bit_length()
        moved += int((now.levels != before.levels).sum())
    assert moved > 10


def test_levels_are_the_scaled_grid():
    p, w, scale = torch.randint(0, 7, (500,)), torch.randn(500), 0.3
    unit, last, most = units_of(p)
    step = torch.tensor(scale * 2.0 ** (1 - most))
    levels = odd_levels(w, unit.float(), last.float(), step)
    record = as_levels(w, p, scale)
    assert torch.equal(levels, record.levels.float())
    torch.testing.assert_close(weight_of(record, w.dtype), scaled_grid(w, p, scale), rtol=1e-6, atol=0)


def test_forward_is_on_the_grid_to_the_bit_and_the_gradient_is_straight_through():
    node = OnGrid(torch.randn(40, 30), torch.randint(0, 6, (40, 30)), torch.tensor(0.03))
    seed = torch.randn(40, 30)
    value = node()
    (value * seed).sum().backward()
    assert torch.equal(value, node.project())
    assert torch.equal(node.weight.grad, seed)
    assert torch.equal(node.bits() == 0, node.project() == 0)


def test_settling_keeps_where_between_two_values_a_weight_was():
    lift = Precision(p_init=2)
    lifted = lift.lift(task())
    finalized = finalize(lifted, lift)
    small, again = lift.project(lifted), KeepGrid().project(finalized)
    for (name, a), b in zip(small.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b), name
    nodes = [m for m in finalized.modules() if isinstance(m, OnGrid)]
    assert any(not torch.equal(node.weight, node.project()) for node in nodes)
    with torch.no_grad():
        nodes[0].weight.fill_(100.0)
    constrain(finalized)
    assert torch.equal(nodes[0].weight, nodes[0].top())


@given(st.floats(1e-6, 1e3), st.integers(0, 2**31), st.sampled_from([torch.float32, torch.float64]))
def test_any_scale_is_held_to_the_bit(scale, seed, dtype):
    """The grid that is recorded holds the very values, and takes none of them to another."""
    generator = torch.Generator().manual_seed(seed)
    p = torch.randint(0, 9, (30, 4), generator=generator)
    model = nn.Linear(4, 30, dtype=dtype)
    record = as_levels(torch.randn(30, 4, generator=generator).to(dtype) * scale, p, scale)
    store(model, "weight", step=record.step, levels=record.levels)
    actual = stored(model)["weight"]
    assert torch.equal(actual.levels, record.levels)
    assert torch.equal(actual.precision == 0, p == 0)
    assert bool((actual.precision <= p).all())  # fewer where no weight reaches the end of the grid
    assert torch.equal(OnGrid(model.weight, actual.precision, actual.step).project(), model.weight)


def test_weights_without_a_grid_raise():
    with pytest.raises(TorchliftError, match=r"has a grid \(tl.stored\): quantize first \(recipes.Smol"):
        KeepGrid().lift(task())


@example(61, 6, torch.float32)
@given(st.integers(0, 2**31), st.integers(1, 6), st.sampled_from([torch.float32, torch.float64]))
def test_rows_with_steps_of_their_own_keep_their_bits(seed, p, dtype):
    """A norm folded into a layer of p bits leaves p bits: with seed 61, 6 were read as 13."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.rand(6, 1, generator=generator).to(dtype) + 0.1
    model = nn.Linear(40, 6, dtype=dtype)
    record = as_levels(torch.randn(6, 40, generator=generator).to(dtype), p, 0.75)
    record.levels[2] = 0
    store(model, "weight", step=record.step, levels=record.levels)
    scale_rows(model, "weight", rows.flatten())
    actual = stored(model)["weight"]
    assert torch.equal(actual.levels, record.levels)
    assert int(actual.precision.max()) == int(actual.precision[actual.levels != 0].min()) == p
    assert not bool(actual.precision[2].any())
    assert torch.equal(OnGrid(model.weight, actual.precision, actual.step).project(), model.weight)
