"""Normalization for the time of training: what it starts as, and what its moments are after few steps."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import torchlift as tl
from torchlift.core import Node, Task, store
from torchlift.lifts import KeepGrid, Normalize, Precision


def lifted() -> tuple[Task, Node]:
    torch.manual_seed(0)
    problem = Normalize().lift(Task(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), "mse"))
    assert isinstance(problem, Task)
    node = problem.model[0]
    assert isinstance(node, Node)
    return problem, node


def test_it_starts_as_the_identity():
    _, node = lifted()
    x = torch.randn(5, 4)
    assert_close(node.eval()(x), node.inner(x))


def test_after_one_batch_the_moments_are_those_of_the_batch():
    problem, node = lifted()
    x = 3 + 2 * torch.randn(50, 4)
    trained = node.train()(x)
    z = node.inner(x)
    mean, variance = node.moments()
    assert_close(mean, z.mean(0))
    assert_close(variance, z.var(0))
    plain = Normalize().project(problem).model[0]
    assert_close(plain(x), trained, rtol=0, atol=0.05)  # biased and unbiased variance of fifty samples


def test_the_moments_are_weighted_means_of_what_was_seen():
    """Σ 0.9^age m / Σ 0.9^age over three batches."""
    _, node = lifted()
    batches = [k + torch.randn(20, 4) for k in range(3)]
    for x in batches:
        node.train()(x)
    weights = torch.tensor([0.81, 0.9, 1.0])
    for actual, own in zip(node.moments(), (lambda z: z.mean(0), lambda z: z.var(0)), strict=True):
        each = torch.stack([own(node.inner(x)) for x in batches])
        assert_close(actual, (weights[:, None] * each).sum(0) / weights.sum())


def test_half_precision_forgets_no_weight_of_what_was_seen():
    torch.manual_seed(0)
    task = Task(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)).bfloat16(), "mse")
    problem = Normalize().lift(task)
    node, x = problem.model[0], torch.randn(32, 4).bfloat16()
    for _ in range(200):
        node.train()(x)
    assert_close(node.seen, torch.tensor(1.0))
    assert {b.dtype for b in node.moments()} == {torch.bfloat16}
    assert Normalize().project(problem).model[0].weight.dtype == torch.bfloat16


def quantized(problem: Task) -> Task:
    lift = Precision(p_init=3, granularity="tensor")
    small = lift.project(lift.lift(problem))
    assert isinstance(small, Task)
    return small


def trained() -> Task:
    torch.manual_seed(0)
    task = Task(nn.Sequential(nn.Linear(40, 6), nn.ReLU(), nn.Linear(6, 5)), "mse")
    problem = Normalize().lift(task)
    for _ in range(5):
        problem.train().predict(1 + 3 * torch.randn(30, 40))
    assert isinstance(problem, Task)
    return problem.eval()


def test_a_fold_goes_into_the_steps_of_rows_and_leaves_the_levels():
    small = quantized(trained())
    before = tl.stored(small.model)["0.inner.weight"]
    plain = Normalize().project(small)
    after = tl.stored(plain.model)["0.weight"]
    assert torch.equal(after.levels, before.levels)
    assert torch.equal(after.kept, before.kept)
    assert after.step.shape == (6, 1)
    x = torch.randn(9, 40)
    assert_close(plain.predict(x), small.predict(x))
    kept = KeepGrid().project(KeepGrid().lift(plain)).model[0].weight
    assert torch.equal(kept, plain.model[0].weight)


@pytest.mark.filterwarnings("error")
def test_a_grid_that_was_left_before_the_fold_is_forgotten_silently():
    small, moved = quantized(trained()), trained()
    for name, record in tl.stored(small).items():
        store(moved, name, step=record.step, levels=record.levels)
    with torch.no_grad():
        moved.model[0].inner.weight.add_(0.01 * torch.randn(6, 40))
    x = torch.randn(9, 40)
    plain = Normalize().project(moved)
    assert_close(plain.predict(x), moved.predict(x))
    assert list(tl.stored(plain.model)) == ["2.weight"]


def test_in_half_precision_the_fold_stays_exact():
    small = quantized(trained())
    half = small.bfloat16()
    plain = Normalize().project(half)
    x = torch.randn(9, 40).bfloat16()
    assert_close(plain.predict(x), half.predict(x), rtol=0.05, atol=0.1)
