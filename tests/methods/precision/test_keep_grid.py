"""Weights on a grid stay on it, each with its bits; gradients go straight through."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import torchlift as tl
from torchlift.core import Task, constrain
from torchlift.errors import TorchliftError
from torchlift.lifts import KeepGrid, Precision
from torchlift.methods.precision.grid_reading import grid_of
from torchlift.methods.precision.grids import half_step, on_grid, rounded, to_grid
from torchlift.methods.precision.keep_grid import OnGrid, nearest, settle
from torchlift.testing.laws import LAWS


def task() -> Task:
    torch.manual_seed(0)
    return Task(nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3)))


def quantized(p_init: float = 3) -> Task:
    lift = Precision(p_init=p_init)
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
    grids = {n: grid_of(p) for n, p in start.model.named_parameters() if p.ndim > 1}
    result = tl.fit(
        start.model, batch(), recipe=KeepGrid(), optimizer=optimizer, epochs=10, batch_size=16, progress=False
    )
    moved = 0
    for name, (bits, scale) in grids.items():
        w = result.model.get_parameter(name)
        assert torch.equal(scale * to_grid(w / scale, bits), w)
        moved += int((w != start.model.get_parameter(name)).sum())
    assert moved > 10


def test_nearest_is_the_scaled_grid():
    p = torch.randint(0, 7, (500,))
    w, scale = torch.randn(500), 0.171875
    unit = torch.where(p > 0, half_step(p) * scale, 0.0).float()
    top = torch.where(p > 0, 2 * scale - unit, 0.0)
    assert torch.equal(nearest(w, unit, top), scale * to_grid(w / scale, p))


def test_forward_is_on_the_grid_to_the_bit_and_the_gradient_is_straight_through():
    node = OnGrid(torch.randn(40, 30), torch.randint(0, 6, (40, 30)), 0.75)
    seed = torch.randn(40, 30)
    value = node()
    (value * seed).sum().backward()
    assert torch.equal(value, node.project())
    assert torch.equal(node.weight.grad, seed)
    assert torch.equal(node.bits() == 0, node.project() == 0)


def test_settling_keeps_where_between_two_values_a_weight_was():
    lift = Precision(p_init=2)
    lifted = lift.lift(task())
    held = settle(lifted, lift)
    small, again = lift.project(lifted), KeepGrid().project(held)
    for (name, a), b in zip(small.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b), name
    nodes = [m for m in held.modules() if isinstance(m, OnGrid)]
    assert any(not torch.equal(node.weight, node.project()) for node in nodes)
    with torch.no_grad():
        nodes[0].weight.fill_(100.0)
    constrain(held)
    assert torch.equal(nodes[0].weight, nodes[0].top)


@given(st.floats(1e-6, 1e3), st.integers(0, 2**31), st.sampled_from([torch.float32, torch.float64]))
def test_any_scale_is_read_from_the_values(scale, seed, dtype):
    """The grid that is read holds the very values, and takes none of them to another."""
    generator = torch.Generator().manual_seed(seed)
    p = torch.randint(0, 9, (30, 4), generator=generator)
    c = torch.tensor(scale, dtype=dtype)
    w = on_grid(torch.randn(30, 4, generator=generator).to(dtype) * c, p, c)
    found = grid_of(w)
    assert found is not None
    bits, read = found
    assert torch.equal(on_grid(w, bits, read), w)
    assert torch.equal(OnGrid(w, bits, read).project(), w)
    assert bool((bits <= p).all()) or read > scale  # the least scale that fits: never more bits than it had


def test_weights_on_no_grid_are_refused():
    with pytest.raises(TorchliftError, match=r"lies on a grid: quantize first \(recipes.Smol"):
        KeepGrid().lift(task())
    assert grid_of(torch.randn(50, 50)) is None
    assert grid_of(torch.zeros(3, 3)) is None


@given(st.integers(0, 2**31), st.integers(1, 6), st.sampled_from([torch.float32, torch.float64]))
def test_rows_with_scales_of_their_own_are_read(seed, p, dtype):
    generator = torch.Generator().manual_seed(seed)
    rows = rounded(torch.rand(6, 1, generator=generator).to(dtype) + 0.1, 8)
    w = rows * on_grid(torch.randn(6, 40, generator=generator).to(dtype), p, 0.75)
    w[2] = 0.0
    bits, scale = grid_of(w)
    assert torch.equal(on_grid(w, bits, scale), w)
    assert torch.equal(OnGrid(w, bits, scale).project(), w)
    assert int(bits.max()) <= p + 1  # a row need not hold the largest value of its grid
    assert not bool(bits[2].any())


def test_a_few_numbers_in_each_row_are_no_grid():
    assert grid_of(torch.randn(40, 1)) is None
    assert grid_of(torch.randn(40, 3)) is None
    assert grid_of(torch.randn(12, 1, 3, 3)) is None
