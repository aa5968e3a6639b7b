"""Three-splitting blocks and training."""

import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from torchlift import lifted
from torchlift.methods.lifted.solvers.splitting import activation_step, relu_preactivation


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_scalar_step_is_a_global_minimum() -> None:
    u, m = randn(40).clamp(min=-0.2), 2 * randn(40, seed=1)
    actual = relu_preactivation(u, m, 1.3, 0.4)
    for a, b, v in zip(u.tolist(), m.tolist(), actual.tolist(), strict=True):

        def cost(z: float, a: float = a, b: float = b) -> float:
            return 1.3 * (a - max(z, 0)) ** 2 + 0.4 * (z - b) ** 2

        best = min(minimize_scalar(cost, bounds=r, method="bounded").fun for r in ((-6, 0), (0, 6)))
        assert cost(v) <= best + 1e-9


def test_the_state_step_solves_its_normal_equations() -> None:
    weight, bias, v, target = randn(4, 6), randn(4, seed=1), randn(9, 4, seed=2), randn(9, 6, seed=3)
    u = activation_step(weight, bias, v, target, 0.7, 1.9)
    slope = 0.7 * (u - target) + 1.9 * (u @ weight.mT + bias - v) @ weight
    assert slope.abs().max() < 1e-10


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
