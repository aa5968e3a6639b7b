"""W = L V Rᵀ in the eigenbasis of the gradients."""

import pytest
import torch
from torch import nn

from torchlift.core import Task, nodes
from torchlift.errors import DivergedError, TorchliftError
from torchlift.lifts import Rotate
from torchlift.testing import LAWS


def regression(n=64, inputs=5, outputs=3):
    torch.manual_seed(1)
    model = nn.Linear(inputs, outputs, bias=False).double()
    x = torch.randn(n, inputs, dtype=torch.float64) @ torch.randn(inputs, inputs, dtype=torch.float64)
    return Task(model, "mse"), (x, torch.randn(n, outputs, dtype=torch.float64))


def test_bases_diagonalize_the_moments_of_the_gradient():
    task, batch = regression()
    lifted = Rotate(batches=(batch,)).lift(task)
    weight = task.model.weight
    (gradient,) = torch.autograd.grad(task(batch), weight)
    (_, node) = next(nodes(lifted))
    left, right = node.bases()
    for basis, moment in ((left, gradient @ gradient.T), (right, gradient.T @ gradient)):
        torch.testing.assert_close(basis.T @ basis, torch.eye(len(basis), dtype=torch.float64))
        turned = basis.T @ moment @ basis
        assert (turned - turned.diagonal().diag()).abs().max() < 1e-10 * moment.norm()
    torch.testing.assert_close(node.coordinates, left.T @ weight @ right)


def test_turning_twice_is_turning_once():
    task, batch = regression()
    rotate = Rotate(batches=(batch,))
    once, twice = rotate.lift(task), rotate.lift(task)
    rotate.turn(twice, [batch])
    (_, a), (_, b) = next(nodes(once)), next(nodes(twice))
    torch.testing.assert_close(a(), b())
    torch.testing.assert_close(a.bases()[0].abs(), b.bases()[0].abs())


def test_gradient_descent_does_not_see_it():
    task, batch = regression()
    rotate = Rotate(batches=(batch,))
    lifted = rotate.lift(task)
    for problem in (task, lifted):
        torch.optim.SGD(problem.parameters(), lr=0.1).step(lambda p=problem: p(batch).backward())
    torch.testing.assert_close(rotate.project(lifted).model.weight, task.model.weight)


def test_taking_gradients_changes_nothing():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 2))
    task, batch = Task(model, "mse"), (torch.randn(8, 4), torch.randn(8, 2))
    before, stream = {k: v.clone() for k, v in task.state_dict().items()}, torch.get_rng_state()
    lifted = Rotate(batches=(batch,)).lift(task)
    assert torch.equal(torch.get_rng_state(), stream)
    assert all(torch.equal(v, before[k]) for k, v in task.state_dict().items())
    assert lifted.get_buffer("base.model.1.num_batches_tracked") == 0


def test_large_sides_keep_their_coordinates():
    task, batch = regression(inputs=9)
    lifted = Rotate(batches=(batch,), largest=4).lift(task)
    (_, node) = next(nodes(lifted))
    assert [basis.numel() for basis in node.bases()] == [9, 0]
    LAWS["starts_where_the_problem_is"](Rotate(batches=(batch,), largest=4), task, batch)


def test_gradients_that_are_not_finite_are_named():
    task, (x, y) = regression()
    with pytest.raises(DivergedError, match="not finite"):
        Rotate(batches=((x * float("nan"), y),)).lift(task)


def test_no_batches_to_turn_by():
    task, _ = regression()
    rotate = Rotate()
    with pytest.raises(TorchliftError, match="needs batches"):
        rotate.turn(rotate.lift(task), [])
