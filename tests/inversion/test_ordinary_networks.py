"""Networks as people write them run backward: functions, views, skips, maxima, 1-D and transposed layers."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import torchlift as tl

F64 = torch.float64


class Functions(nn.Module):
    """F.relu, max-pooling, view, dropout, a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.fc1, self.fc2 = nn.Linear(128, 60), nn.Linear(60, 60)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.leaky_relu(self.conv(x), 0.3), 2)
        x = F.dropout(x, 0.5, training=self.training)
        x = self.fc1(x.view(x.size(0), -1))
        return x + torch.tanh(self.fc2(x))


class Joined(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(12, 10), nn.Linear(10, 14)

    def forward(self, x: Tensor) -> Tensor:
        h = F.elu(self.one(x))
        return torch.cat([h, F.softplus(self.two(h))], dim=1)


def signals() -> nn.Module:
    return nn.Sequential(nn.Conv1d(1, 6, 3, padding=1), nn.ELU(), nn.Flatten(), nn.Linear(48, 30))


def transposed() -> nn.Module:
    layers = [nn.ConvTranspose2d(2, 6, 3, stride=2), nn.LeakyReLU(0.2), nn.Conv2d(6, 3, 3), nn.Tanh()]
    return nn.Sequential(nn.Unflatten(1, (2, 3, 3)), *layers)


NETWORKS = {
    "functions": (Functions, (1, 8, 8), "forward+lbfgs"),
    "joined": (Joined, (12,), "forward+lbfgs"),
    "signals": (signals, (1, 8), "bcd+lbfgs"),
    "transposed": (transposed, (18,), "bcd+lbfgs"),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_ordinary_networks_are_inverted(name: str) -> None:
    make, shape, method = NETWORKS[name]
    torch.manual_seed(0)
    model = make().double().eval()
    x = torch.randn(2, *shape, dtype=F64)
    with torch.no_grad():
        y, blank = model(x), model(torch.zeros_like(x))
    actual = tl.invert(model, y, reg=tl.convex.L2(1e-6), shape=shape, max_iter=200, progress=False)
    assert actual.method == method
    assert actual.residual < 0.05 * float((y - blank).norm())
    torch.testing.assert_close(
        actual.residual, float((model(actual.x).detach() - y).norm()), rtol=1e-6, atol=1e-9
    )


def test_sums_between_activations_are_one_affine_map() -> None:
    class Linked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.scale = nn.Linear(6, 6), nn.Parameter(torch.full((6,), 0.5))

        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(x * self.scale + self.inner(x))

    torch.manual_seed(0)
    model, x = Linked().double(), torch.randn(3, 6, dtype=F64)
    actual = tl.invert(model, model(x).detach(), reg=tl.convex.L2(1e-8), shape=(6,), progress=False)
    assert actual.method == "fista"
    assert actual.gap is not None
    assert actual.gap < 1e-6


def test_dropout_in_training_raises_by_name() -> None:
    model = Functions().double()
    with pytest.raises(tl.TorchliftError, match=r"'dropout' .Dropout. is in training mode"):
        tl.invert(model, torch.zeros(1, 60, dtype=F64), reg=tl.convex.L2(1.0), shape=(1, 8, 8))


def test_a_linear_code_ends_no_worse_than_adam() -> None:
    """The lifted energy alone stopped at twice Adam's residual."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 12)).double()
    x = torch.randn(4, 20, dtype=F64)
    y = model(x).detach() + 0.05 * torch.randn(4, 12, dtype=F64)
    ours = tl.invert(model, y, reg=tl.convex.L2(1e-4), max_iter=150, progress=False)
    adam = tl.invert(model, y, reg=tl.convex.L2(1e-4), method="adam", max_iter=300, progress=False)
    assert ours.residual <= 1.05 * adam.residual


def test_deep_networks_converge_and_end_no_higher_than_blocks_alone() -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(12, 24), nn.LeakyReLU(0.3), nn.Linear(24, 24), nn.LeakyReLU(0.3), nn.Linear(24, 20)]
    model = nn.Sequential(*layers, nn.Tanh()).double()
    x = torch.randn(2, 12, dtype=F64)
    y = model(x).detach()
    auto, blocks = (
        tl.invert(model, y, reg=tl.convex.L2(1e-6), method=method, progress=False)
        for method in ("auto", "bcd")
    )
    assert auto.converged
    assert float((auto.x - x).norm()) <= 1.01 * float((blocks.x - x).norm())


def test_sums_of_regularizers() -> None:
    """min ½‖x − y‖² + TV + α₂/2‖x‖² is the denoised y/(1 + α₂) at weight 1/(1 + α₂)."""
    y = torch.randn(2, 16, generator=torch.Generator().manual_seed(0), dtype=F64)
    model = nn.Linear(16, 16, bias=False).double()
    nn.init.eye_(model.weight)
    actual = tl.invert(
        nn.Sequential(model), y, reg=tl.convex.TV(0.3) + tl.convex.L2(0.5), tol=1e-9, progress=False
    )
    torch.testing.assert_close(actual.x, tl.convex.TV(0.2).prox(y / 1.5), rtol=0, atol=1e-4)
    two = tl.convex.L1(0.3) + tl.convex.Wavelets(0.2)
    point, inner = torch.randn(1, 16, dtype=F64), two.prox
    best, other = inner(point), inner(point + 0.1)
    value = lambda z: float((z - point).square().sum() / 2 + two.fn(z))
    assert value(best) <= min(value(point), value(other), value(0.99 * best), value(1.01 * best))


def test_an_l_curve_without_a_corner_is_told() -> None:
    """It returned the bend of rounding errors, and the image was gone."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.LeakyReLU(0.5)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(8))
    y = model(torch.randn(2, 8, dtype=F64)).detach()
    with pytest.raises(tl.TorchliftError, match="the L-curve has no corner"):
        tl.invert(model, y, reg=tl.convex.L2(1e-3), alpha="l-curve", progress=False)


def test_lam_weighs_the_output_of_residual_networks() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(tl.inversion.MonotoneResidual(6, 4), tl.inversion.MonotoneResidual(6, 4)).double()
    y = torch.randn(3, 6, dtype=F64)
    near, far = (
        tl.invert(model, y, reg=tl.convex.L2(0.5), lam=lam, tol=1e-8, progress=False) for lam in (20.0, 1.0)
    )
    assert near.residual < far.residual / 3
