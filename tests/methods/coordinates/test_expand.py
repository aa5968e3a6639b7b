"""Linear over-parameterization and folded normalization: exact at both ends."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d, linear
from torch.testing import assert_close

from torchlift.core import Task, nodes
from torchlift.errors import SelectionError, TorchliftError
from torchlift.lifts import Expand, Normalize


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def net():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(36, 5), nn.Linear(5, 3)
    )


def batch():
    return torch.randn(6, 2, 8, 8, dtype=torch.float64), torch.randint(3, (6,))


@pytest.mark.parametrize("side", ["out", "in", "both"])
def test_expansion_starts_at_the_weight_and_every_coordinate_learns(side):
    task = Task(net().double())
    lifted = Expand(side=side, rank=0.5).lift(task)
    x, y = batch()
    assert torch.equal(lifted.predict(x), task.predict(x))
    optimizer = torch.optim.SGD(lifted.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        lifted((x, y)).backward()
        optimizer.step()
    assert all(p.grad.abs().max() > 0 for p in lifted.parameters())


@pytest.mark.parametrize("side", ["out", "in", "both"])
def test_merged_is_the_same_function_off_the_data(side):
    lift = Expand(side=side)
    lifted = lift.lift(Task(net().double()))
    for parameter in lifted.parameters():
        nn.init.normal_(parameter)
    merged = lift.project(lifted)
    x = 10 * torch.randn(3, 2, 8, 8, dtype=torch.float64)
    assert_close(merged.predict(x), lifted.predict(x), rtol=1e-12, atol=1e-12)
    assert type(merged) is Task
    assert [type(m) for m in merged.modules()] == [type(m) for m in Task(net()).modules()]


def test_the_formula_against_layers_applied_in_turn():
    """(I + B A) W x = W x + B (A (W x)), for matrices and for kernels."""
    lifted = Expand(side="out", rank=0.6).lift(
        Task(nn.Sequential(nn.Linear(4, 5), nn.Conv2d(2, 5, 3)).double())
    )
    for parameter in lifted.parameters():
        nn.init.normal_(parameter)
    flat, spatial = (node for _, node in nodes(lifted))
    x, maps = torch.randn(7, 4, dtype=torch.float64), torch.randn(2, 2, 6, 6, dtype=torch.float64)
    z = linear(x, flat.weight)
    assert_close(linear(x, flat()), z + linear(linear(z, flat.up["0"]), flat.down["0"]))
    z, (a, b) = conv2d(maps, spatial.weight), (m["0"][:, :, None, None] for m in (spatial.up, spatial.down))
    assert_close(conv2d(maps, spatial()), z + conv2d(conv2d(z, a), b))


def test_one_gradient_step_is_preconditioned_descent():
    """With B = 0: one step moves the merged weight by −lr (G + G Wᵀ Aᵀ A W), to first order."""
    w = torch.randn(4, 3, dtype=torch.float64)
    lifted = Expand(rank=1.0).lift(
        Task(nn.Linear(3, 4, bias=False).double(), lambda m, x: m(x).square().sum() / 2)
    )
    node = next(node for _, node in nodes(lifted))
    node.weight.data = w.clone()
    x = torch.randn(6, 3, dtype=torch.float64)
    gradient = w @ x.T @ x
    lr = 1e-6
    a = node.up["0"].detach().clone()
    lifted(x).backward()
    with torch.no_grad():
        for parameter in lifted.parameters():
            parameter -= lr * parameter.grad
        moved = (node() - w) / -lr
    assert_close(moved, gradient + gradient @ w.T @ a.T @ a @ w, rtol=1e-3, atol=1e-3)


def test_expand_checks_its_settings():
    with pytest.raises(TorchliftError, match="rank"):
        Expand(rank=0)
    with pytest.raises(SelectionError, match="matches nothing"):
        Expand("nothing").lift(Task(net()))


def test_normalize_is_the_identity_in_evaluation_and_folds_exactly():
    task = Task(net().double())
    lift = Normalize()
    lifted = lift.lift(task)
    x, y = batch()
    assert_close(lifted.eval().predict(x), task.eval().predict(x))
    lifted.train()
    optimizer = torch.optim.SGD(lifted.parameters(), 0.1)
    for _ in range(5):
        optimizer.zero_grad()
        lifted((x, y)).backward()
        optimizer.step()
    folded = lift.project(lifted.eval())
    far = 10 * torch.randn(3, 2, 8, 8, dtype=torch.float64)
    assert_close(folded.predict(far), lifted.predict(far), rtol=1e-10, atol=1e-10)
    assert list(folded.state_dict()) == list(task.state_dict())


def test_normalize_agrees_with_torch_batch_norm():
    layer, norm = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)
    x = torch.randn(6, 2, 8, 8)
    lifted = Normalize("0").lift(Task(nn.Sequential(layer)))
    for _ in range(3):
        expected = norm(layer(x))
        actual = lifted.predict(x)
    assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    started = 0.9**3  # what torch's running moments still have of their start, 0 and 1
    mean, variance = lifted.model[0].moments()
    assert_close((1 - started) * mean, norm.running_mean)
    assert_close((1 - started) * variance + started, norm.running_var)


def test_normalize_works_on_sequences_over_the_last_axis():
    lifted = Normalize("0").lift(Task(nn.Sequential(nn.Linear(3, 4))))
    z = lifted.predict(torch.randn(5, 7, 3))
    assert_close(z.mean((0, 1)), torch.zeros(4), rtol=0, atol=1e-6)
    assert_close(z.var((0, 1), unbiased=False), torch.ones(4), rtol=1e-3, atol=1e-3)


def test_the_output_layer_is_left_alone_unless_asked_for():
    names = [name for name, _ in nodes(Normalize().lift(Task(net())).model)]
    assert names == ["0", "3"]
    assert [name for name, _ in nodes(Normalize(output=True).lift(Task(net())).model)] == ["0", "3", "4"]
    assert [name for name, _ in nodes(Normalize("4").lift(Task(net())).model)] == ["4"]


def test_normalize_needs_a_bias():
    with pytest.raises(TorchliftError, match="bias"):
        Normalize("0").lift(Task(nn.Sequential(nn.Linear(3, 4, bias=False))))


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(4, 6, 3, groups=2),
        nn.Conv2d(4, 4, 3, groups=4),
        nn.ConvTranspose2d(4, 6, 3, groups=2),
        nn.ConvTranspose2d(4, 6, 3),
    ],
    ids=str,
)
def test_a_norm_folds_into_any_number_of_groups(layer):
    lift, x = Normalize("0"), torch.randn(5, 4, 6, 6)
    lifted = lift.lift(Task(nn.Sequential(copy.deepcopy(layer))))
    for _ in range(3):
        lifted.train().predict(x)
    with torch.no_grad():
        lifted.model[0].gamma.uniform_(0.5, 2.0)
        lifted.model[0].beta.normal_()
    assert_close(lift.project(lifted).eval().predict(x), lifted.eval().predict(x), rtol=1e-4, atol=1e-5)


def test_layers_that_cannot_take_a_norm_are_passed_over():
    layers = [nn.Conv2d(3, 4, 3, bias=False), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(4 * 16, 2)]
    lifted = Normalize().lift(Task(nn.Sequential(*layers)))
    assert [name for name, _ in nodes(lifted.model)] == ["1"]
