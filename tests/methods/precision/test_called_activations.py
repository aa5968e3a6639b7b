"""Activations that a forward calls as functions are found, as those that are modules."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import torchlift as tl
from torchlift.errors import SelectionError
from torchlift.methods.precision.activation_precision import GridActivation
from torchlift.methods.precision.called_activations import with_activation_modules


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


@pytest.mark.parametrize("make", [Net, lambda: tl.models.ResNet(20)])
def test_the_same_function_and_names_with_activations_as_modules(make):
    torch.manual_seed(0)
    model = make().eval()
    x = torch.randn(3, 4) if isinstance(model, Net) else torch.randn(2, 3, 32, 32)
    made = with_activation_modules(tl.Task(model)).model
    torch.testing.assert_close(made(x), model(x), rtol=0, atol=0)
    assert set(made.state_dict()) == set(model.state_dict())
    assert sum(isinstance(part, nn.ReLU | nn.Tanh) for part in made.modules()) >= 3
    assert not any(isinstance(part, nn.ReLU) for part in model.modules())


@pytest.mark.parametrize("lift", [tl.lifts.ActivationPrecision(), tl.lifts.Pact()])
def test_activations_of_a_functional_model_are_quantized(lift):
    x = torch.randn(32, 4, generator=torch.Generator().manual_seed(0))
    model = tl.fit(Net(), (x, (x[:, 0] > 0).long()), recipe=lift, epochs=1, progress=False).model
    assert sum(isinstance(part, GridActivation) for part in model.modules()) == 3


@pytest.mark.parametrize("kind", [Dropping, Branching])
def test_a_forward_that_depends_on_mode_or_values_is_left_alone(kind):
    task = tl.Task(kind())
    assert type(with_activation_modules(task).model) is kind
    with pytest.raises(SelectionError):
        tl.lifts.ActivationPrecision().lift(task)
