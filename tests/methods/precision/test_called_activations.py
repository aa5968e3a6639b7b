"""Activations that a forward calls as functions are found, as those that are modules."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import torchlift as tl
from torchlift.core import nodes
from torchlift.errors import SelectionError


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x))
        x = (x + torch.tanh(self.second(x))).relu()
        return self.head(x.view(-1, 8))


class Dropping(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.dropout(F.relu(self.first(x)), 0.5, self.training))


class Branching(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.first(x)) if x.sum() > 0 else self.second(self.first(x)))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 3, padding=1, bias=False), nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + F.relu(self.norm(self.conv(x))))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.head = nn.Sequential(Block(), Block()), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x).mean((2, 3)))


class TanhGELU(nn.Module):
    """A smooth activation that is written with another."""

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1 + torch.tanh(0.8 * (x + 0.045 * x**3)))


class OwnReLU(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x)


EXACT = tl.lifts.ActivationPrecision(clip=1e6)
"""Without noise, nothing is clipped: the function that is given."""


@pytest.mark.parametrize(("kind", "shape"), [(Net, (3, 4)), (Residual, (2, 3, 8, 8))])
def test_the_same_function_and_names_with_activations_as_modules(kind, shape):
    torch.manual_seed(0)
    model, x = kind().eval(), torch.randn(*shape)
    lifted = EXACT.lift(tl.Task(model)).eval()
    torch.testing.assert_close(lifted.predict(x), model(x), rtol=0, atol=0)
    small = EXACT.project(lifted).model
    added = {name for name in small.state_dict() if name.endswith(("bits", "alpha"))}
    assert set(small.state_dict()) - added == set(model.state_dict())
    assert sum(isinstance(module, nn.ReLU | nn.Tanh) for module in small.modules()) >= 3
    assert not any(isinstance(module, nn.ReLU) for module in model.modules())


def test_activations_that_are_modules_stay_as_they_are():
    model = tl.models.ResNet(20)
    lifted = tl.lifts.ActivationPrecision().lift(tl.Task(model))
    actual = [name for name, _ in nodes(lifted.model)]
    assert actual == [name for name, module in model.named_modules() if isinstance(module, nn.ReLU)]
    assert len(actual) == 19


def test_what_an_activation_is_made_of_is_no_activation():
    model = nn.Sequential(nn.Linear(4, 4), TanhGELU(), nn.Linear(4, 4), OwnReLU())
    lifted = tl.lifts.ActivationPrecision().lift(tl.Task(model))
    assert [type(module) for module in lifted.model[:3]] == [nn.Linear, TanhGELU, nn.Linear]
    assert [name for name, _ in nodes(lifted.model)] == ["3.act1"]
    with pytest.raises(SelectionError, match="TanhGELU: is not a ReLU"):
        tl.lifts.ActivationPrecision().lift(tl.Task(model[:3]))


@pytest.mark.parametrize("lift", [tl.lifts.ActivationPrecision(), tl.lifts.Pact()])
def test_activations_of_a_functional_model_are_quantized(lift):
    x = torch.randn(32, 4, generator=torch.Generator().manual_seed(0))
    model = tl.fit(Net(), (x, (x[:, 0] > 0).long()), recipe=lift, epochs=1, progress=False).model
    assert sum(type(module).__name__ == "GridActivation" for module in model.modules()) == 3


@pytest.mark.parametrize("kind", [Dropping, Branching])
def test_a_forward_that_depends_on_mode_or_values_is_left_alone(kind):
    with pytest.raises(SelectionError):
        tl.lifts.ActivationPrecision().lift(tl.Task(kind()))
