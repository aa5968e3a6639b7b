"""What a method cannot do is an error of one line that names it, and has its row on the page."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

import torchlift as tl
from torchlift import lifted

PAGE = (Path(__file__).parents[3] / "docs" / "methods" / "lifted.md").read_text()


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.one(x)) * self.two(x)


class Skip(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.inner(x)) + x)


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 3)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.last(x + y)


def between(module: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 6), module, nn.Linear(6, 3))


def image_net(conv: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (2, 3)), conv, nn.ReLU(), nn.Flatten(), nn.LazyLinear(3))


def half_frozen() -> nn.Module:
    model = between(nn.ReLU())
    model[0].bias.requires_grad_(False)
    return model


def tied() -> nn.Module:
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.ReLU(), nn.Linear(6, 3))


@pytest.mark.parametrize(
    ("model", "method", "named", "on_page"),
    [
        (between(nn.SiLU()), "contrastive", "SiLU", "`SiLU`"),
        (between(nn.LayerNorm(6)), "contrastive", "LayerNorm", "`LayerNorm`"),
        (Gate(), "contrastive", "'mul'", "a product of two values"),
        (Skip(), "bcd", "'add' outside a plain chain", "outside a plain chain"),
        (Skip(), "isgm", "'add' outside a plain chain", "outside a plain chain"),
        (image_net(nn.Conv1d(2, 2, 2)), "bcd", "Conv1d.*has no block", "`Conv1d`"),
        (between(nn.ReLU()), "soft", "needs a lifted.Recursive", "`lifted.Recursive`"),
        (half_frozen(), "bcd", "freeze both", "freeze both"),
        (tied(), "bcd", "one weight in two layers", "two layers with one weight"),
        (between(nn.ReLU()).half(), "bcd", "float16", "half precision"),
        (
            nn.Sequential(weight_norm(nn.Linear(6, 6)), nn.ReLU(), nn.Linear(6, 3)),
            "bcd",
            "computed",
            "computed weights",
        ),
        (nn.LSTM(6, 3), "contrastive", "cannot be traced", "`LSTM`"),
        (TwoInputs(), "contrastive", "more than one input", "several inputs or outputs"),
        (between(lifted.Act("sign")), "contrastive", "jumps", "activations that jump"),
        (nn.Sequential(nn.Linear(6, 3), nn.Sigmoid()), "bcd", "must end in", "behind the last layer"),
        (between(nn.Sequential(nn.ReLU(), nn.Tanh())), "bcd", "does not follow", "behind another activation"),
        (
            between(nn.BatchNorm1d(6, track_running_stats=False)).eval(),
            "contrastive",
            "keeps no running statistics",
            "without running statistics",
        ),
        (
            nn.Sequential(nn.Linear(6, 6, bias=False), nn.ReLU(), nn.Linear(6, 3)),
            "splitting",
            "layers with biases",
            "layers without bias",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else None,
)
def test_networks(model: nn.Module, method: str, named: str, on_page: str) -> None:
    data = torch.randn(8, 6), torch.arange(8) % 3
    if any(isinstance(module, nn.LazyLinear) for module in model.modules()):
        model(data[0])
    with pytest.raises(tl.TorchliftError, match=named) as error:
        lifted.train(model, data, method=method, epochs=1, progress=False)
    assert "\n" not in str(error.value)
    assert on_page in PAGE


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"states": "joint"}, "penalty='classical'"),
        ({"sketch": 10}, "penalty='classical'"),
        ({"states": "joint", "penalty": "classical", "state_l1": 0.1}, "states='layers'"),
        ({"parallel": "layers", "chunk": 3}, "goes without chunk"),
        ({"output": -1.0}, "positive weight"),
    ],
)
def test_options(options: dict[str, object], named: str) -> None:
    with pytest.raises(tl.TorchliftError, match=named):
        lifted.BCD(**options)  # type: ignore[arg-type]
    assert f"`{next(iter(options))}" in PAGE
