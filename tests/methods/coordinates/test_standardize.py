import pytest
import torch
from torch import nn
from torch.testing import assert_close

from torchlift.core import Task, chain, nodes, record_pruned
from torchlift.errors import TorchliftError
from torchlift.lifts import Expand, Standardize


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def net():
    conv = nn.Conv2d(2, 4, 3, stride=2, padding=1)
    return nn.Sequential(
        conv, nn.ReLU(), nn.Flatten(), nn.Linear(64, 5), nn.ReLU(), nn.Linear(5, 3, bias=False)
    )


def batch():
    return 3 + torch.randn(32, 2, 8, 8, dtype=torch.float64), torch.randint(3, (32,))


@pytest.mark.parametrize("scaled", [False, True, "whitened"])
def test_the_same_function_at_first_and_at_the_end_on_any_input(scaled):
    task = Task(net().double())
    x, y = batch()
    lift = Standardize(x=x, scaled=scaled)
    lifted = lift.lift(task)
    far = 10 * torch.randn(5, 2, 8, 8, dtype=torch.float64)
    assert_close(lifted.predict(far), task.predict(far), rtol=1e-10, atol=1e-10)
    optimizer = torch.optim.SGD(lifted.parameters(), 0.01)
    for _ in range(3):
        optimizer.zero_grad()
        lifted((x, y)).backward()
        optimizer.step()
    plain = lift.project(lifted)
    assert_close(plain.predict(far), lifted.predict(far), rtol=1e-10, atol=1e-10)
    assert [type(m) for m in plain.modules()] == [type(m) for m in task.modules()]
    assert list(plain.state_dict()) == list(task.state_dict())


def test_means_are_those_of_the_layers_inputs():
    task = Task(net().double())
    x, _ = batch()
    lifted = Standardize(x=x, scaled=True).lift(task)
    assert_close(lifted.model[0].mean, x.mean((0, 2, 3)))
    hidden = task.model[:3](x)
    assert_close(lifted.model[3].mean, hidden.mean(0))
    assert_close(lifted.model[5].mean, torch.zeros(5, dtype=torch.float64))
    assert not torch.equal(lifted.model[5].scale, torch.ones(5, dtype=torch.float64))


def test_whitened_inputs_are_uncorrelated_and_of_one_variance():
    mixed = torch.eye(4, dtype=torch.float64) + 0.2 * torch.randn(4, 4, dtype=torch.float64)
    x = torch.randn(500, 4, dtype=torch.float64) @ mixed + 3
    covariance = whitened(x).T @ whitened(x) / len(x)
    diagonal = covariance.diagonal()
    assert_close(covariance, diagonal.diag())
    assert_close(diagonal, diagonal.max().expand(4), rtol=0.1, atol=0)  # small ones are raised by a hundredth
    turned = whitened(torch.eye(3).double(), inputs=torch.ones(8, 3).double())
    assert_close(turned @ turned.T, torch.eye(3).double())


def test_whitened_coordinates_leave_pruned_layers_alone():
    task = Task(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)))
    with torch.no_grad():
        task.model[0].weight[0, 1:] = 0
    record_pruned(task)
    lifted = Standardize(x=torch.randn(9, 4), scaled="whitened").lift(task)
    assert [name for name, _ in nodes(lifted)] == ["model.1"]


def whitened(x, inputs=None):
    """Rows in the coordinates that a layer has for its inputs, less their mean."""
    inputs = x if inputs is None else inputs
    lifted = Standardize(x=inputs, scaled="whitened").lift(
        Task(nn.Sequential(nn.Linear(x.shape[1], 2)).double())
    )
    node = lifted.model[0]
    return (x - node.mean * (x is inputs)) @ node.scale.T


def test_descent_in_centered_coordinates_ignores_the_mean_of_the_inputs():
    """In least squares a shift of the inputs does not change the path of the function; plain, it does."""
    x, y = torch.randn(40, 3, dtype=torch.float64), torch.randn(40, 2, dtype=torch.float64)

    def losses(shift, lifted):
        torch.manual_seed(1)
        layer = nn.Linear(3, 2).double()
        layer.bias.data -= layer.weight.data @ torch.full((3,), shift, dtype=torch.float64)
        problem = Task(nn.Sequential(layer), "mse")
        problem = Standardize(x=x + shift).lift(problem) if lifted else problem
        optimizer = torch.optim.SGD(problem.parameters(), 0.05)
        actual = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = problem((x + shift, y))
            loss.backward()
            optimizer.step()
            actual.append(loss.detach())
        return torch.stack(actual)

    assert_close(losses(7.0, lifted=True), losses(0.0, lifted=True))
    assert (losses(7.0, lifted=False) - losses(0.0, lifted=False)).abs().max() > 1.0


def test_zeros_of_weights_stay_zero_and_are_held():
    from torchlift.core import original_parameters

    task = Task(net().double())
    task.model[3].weight.data[:, ::2] = 0
    lifted = Standardize(x=batch()[0], scaled=True).lift(task)
    assert bool((lifted.model[3].inner.weight[:, ::2] == 0).all())
    assert "model.3.inner.weight" in set(original_parameters(lifted))


def test_under_a_lift_of_weights():
    task, (x, y) = Task(net().double()), batch()
    lift = chain(Standardize(x=x), Expand(rank=0.5))
    lifted = lift.lift(task)
    lifted((x, y)).backward()
    assert all(p.grad is not None for p in lifted.parameters())
    for parameter in lifted.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    assert_close(lift.project(lifted).predict(x), lifted.predict(x), rtol=1e-10, atol=1e-10)


def test_layers_that_are_not_linear_in_all_inputs_are_left_alone():
    task = Task(nn.Sequential(nn.Conv2d(4, 4, 1, groups=2), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)))
    lifted = Standardize(x=torch.randn(3, 4, 5, 5)).lift(task)
    assert [name for name, _ in nodes(lifted.model)] == ["1"]


def test_inputs_are_asked_for():
    with pytest.raises(TorchliftError, match="pass x="):
        Standardize().lift(Task(net()))
