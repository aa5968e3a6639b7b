"""Grids that follow their weights: as many zeros as at first, the smallest; a scale that goes along."""

import copy
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from torchlift.core import Task, store, stored
from torchlift.lifts import KeepGrid, Precision
from torchlift.methods.precision.grids import scaled_grid
from torchlift.methods.precision.keep_grid import finalize
from torchlift.methods.precision.moving_grid import OnMovingGrid


def task() -> Task:
    torch.manual_seed(0)
    return Task(nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3)))


def batch():
    x = torch.randn(64, 5, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


@given(st.integers(0, 59), st.integers(1, 6), st.integers(0, 99))
def test_it_starts_where_the_grid_is(zeros, p, seed):
    torch.manual_seed(seed)
    w, bits = torch.randn(6, 10), torch.full((1, 1), p)
    node = OnMovingGrid(w, bits, zeros, 1.5)
    kept = w.abs() > (w.abs().flatten().sort().values[zeros - 1] if zeros else -1)
    assert torch.equal(node.project(), scaled_grid(w, p, node.scale()) * kept)
    assert int((node.bits() == 0).sum()) == zeros
    assert not bool(torch.signbit(node.project()[~kept]).any())  # −0 is another value in a file
    assert int(node.bits().max()) == p


def test_the_scale_follows_the_weights_and_the_number_of_zeros_stays():
    w = torch.randn(40, 30)
    node = OnMovingGrid(w, torch.tensor(2), 700, 1.25)
    with torch.no_grad():
        node.weight.mul_(4.0)
    assert torch.equal(node.project(), 4 * OnMovingGrid(w, torch.tensor(2), 700, 1.25).project())
    with torch.no_grad():
        node.weight.copy_(torch.randn(40, 30))
    assert int((node.project() == 0).sum()) == 700
    sizes, gone = node.weight.detach().abs(), node.project() == 0
    assert bool(sizes[gone].max() <= sizes[~gone].min())


def test_the_gradient_is_straight_through():
    node = OnMovingGrid(torch.randn(40, 30), torch.tensor(3), 100, 0.75)
    seed = torch.randn(40, 30)
    value = node()
    (value * seed).sum().backward()
    assert torch.equal(value, node.project())
    assert torch.equal(node.weight.grad, seed)


def moved(zeros_before: bool = False):
    start = task()
    if zeros_before:
        with torch.no_grad():
            start.model[0].weight[::2] = 0.0
        store(start, "model.0.weight", kept=start.model[0].weight != 0)
    lift = Precision(p_init=2, granularity="tensor")
    problem = finalize(lift.lift(start), lift, moving=True)
    optimizer = torch.optim.AdamW(problem.parameters(), lr=0.05)
    for _ in range(30):
        optimizer.zero_grad()
        problem(batch()).backward()
        optimizer.step()
    return start, problem


def test_a_trained_problem_projects_to_what_it_computes_on_grids_that_can_be_read():
    _, problem = moved()
    small = KeepGrid().project(problem)
    torch.testing.assert_close(small.predict(batch()[0]), problem.predict(batch()[0]))
    assert [record.step is not None for record in stored(small).values()] == [True, True]


def test_zeros_move_but_what_was_cut_before_stays():
    start, problem = moved(zeros_before=True)
    cut = start.model[0].weight == 0
    node = problem.nodes["model/0/weight"]
    assert bool((node.weight[cut] == 0).all())
    lift = Precision(p_init=2, granularity="tensor")
    before = finalize(lift.lift(start), lift, moving=True)
    first = before.nodes["model/0/weight"].project() == 0
    now = node.project() == 0
    assert int(first.sum()) == int(now.sum())
    assert bool((first != now).any())
    small = KeepGrid().project(problem)
    assert bool((small.model[0].weight[cut] == 0).all())


def test_copies_and_state_dicts_are_the_problem():
    _, problem = moved()
    again = copy.deepcopy(problem)
    assert torch.equal(again.predict(batch()[0]), problem.predict(batch()[0]))
    lift = Precision(p_init=2, granularity="tensor")
    other = finalize(lift.lift(task()), lift, moving=True)
    other.load_state_dict(problem.state_dict())
    assert torch.equal(other.predict(batch()[0]), problem.predict(batch()[0]))


def test_it_compiles_whole():
    _, problem = moved()
    actual = torch.compile(problem, fullgraph=True, backend="aot_eager")(batch())
    torch.testing.assert_close(actual, problem(batch()))


def test_a_weight_of_zeros_stays_one():
    node = OnMovingGrid(torch.zeros(4, 4), torch.tensor(1), 16, 1.0)
    assert not bool(node().any())


@pytest.mark.parametrize("make", [partial(torch.optim.SGD, lr=0.1, momentum=0.9), torch.optim.AdamW])
def test_steps_of_any_optimizer_keep_it_finite(make):
    node = OnMovingGrid(torch.randn(20, 20), torch.tensor(1), 300, 1.0)
    optimizer = make(node.parameters())
    for _ in range(20):
        optimizer.zero_grad()
        node().square().sum().backward()
        optimizer.step()
    assert bool(torch.isfinite(node()).all())
