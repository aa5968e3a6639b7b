"""W = [V₁; …; V_k], a matrix each."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.optim import AdamW

from torchlift.core import Task
from torchlift.errors import SelectionError, TorchliftError
from torchlift.lifts import Split
from torchlift.optim import Muon


def regression():
    torch.manual_seed(0)
    task = Task(nn.Linear(5, 6).double(), "mse")
    return task, (torch.randn(16, 5).double(), torch.randn(16, 6).double())


def stepped(optimizer, *lifts):
    """The weight after two steps, and before them with its first gradient."""
    task, batch = regression()
    (gradient,) = torch.autograd.grad(task(batch), task.model.weight)
    problem = lifts[0].lift(task) if lifts else task
    chosen = optimizer(problem.parameters())
    for _ in range(2 if optimizer.func is AdamW else 1):
        problem(batch).backward()
        chosen.step()
        chosen.zero_grad()
    done = lifts[0].project(problem) if lifts else problem
    return done.model.weight.detach(), task.model.weight.detach(), gradient


def test_muon_balances_every_block_by_itself():
    muon = partial(Muon, lr=0.1, momentum=0.0)
    after, before, gradient = stepped(muon, Split("weight", 3))
    blocks = [nn.Parameter(block.clone()) for block in before.chunk(3)]
    for block, slope in zip(blocks, gradient.chunk(3), strict=True):
        block.grad = slope
    muon(blocks).step()
    torch.testing.assert_close(after, torch.cat(blocks))
    assert not torch.allclose(after, stepped(muon)[0])


def test_an_element_wise_optimizer_does_not_see_it():
    optimizer = partial(AdamW, lr=0.1, weight_decay=0.1)
    torch.testing.assert_close(stepped(optimizer, Split("weight", 3))[0], stepped(optimizer)[0])


def test_weights_without_such_blocks_are_passed_over_and_named():
    model = nn.Sequential(nn.Linear(5, 6), nn.Linear(6, 4), nn.Linear(4, 3))
    lifted = Split("*", 3).lift(Task(model, "mse"))
    assert list(lifted.nodes) == ["model/0/weight"]
    with pytest.raises(SelectionError, match=r"1.weight has 4 rows, .*2.weight has 3 rows"):
        Split("[12].weight", 3).lift(Task(model, "mse"))
    with pytest.raises(TorchliftError, match="two or more, got 1"):
        Split(parts=1)
