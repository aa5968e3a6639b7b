"""Three-splitting blocks and training."""

import pytest
import torch
from torch import Tensor, nn

from torchlift import lifted


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3)).double()


@pytest.mark.parametrize("multiplier", [False, True])
def test_splitting_trains(multiplier: bool) -> None:
    x = randn(80, 4)
    labels = x[:, :3].argmax(1)
    model = net()
    before = float((model(x).argmax(1) == labels).double().mean())
    lifted.train(
        model, (x, labels), method="splitting", loss="mse", epochs=40, multiplier=multiplier, progress=False
    )
    after = float((model(x).argmax(1) == labels).double().mean())
    assert after > max(0.75, before)


def test_splitting_names_what_it_needs() -> None:
    x = randn(10, 4)
    with pytest.raises(ValueError, match="needs Linear layers with biases, ReLU"):
        lifted.train(net(), (x, torch.arange(10) % 3), method="splitting")
