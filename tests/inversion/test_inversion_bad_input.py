"""What cannot be inverted raises one line that names it."""

import math

import pytest
import torch
from torch import nn

import torchlift as tl
from torchlift.inversion import MonotoneResidual

Y = torch.rand(2, 6)
L2 = tl.convex.L2(0.1)


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU())


def bad_y(value: float) -> torch.Tensor:
    y = Y.clone()
    y[0, 0] = value
    return y


class Skip(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.relu(self.inner(x))


class Exponential(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x)


class Double(nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


def hooked() -> nn.Module:
    net = model()
    net[0].register_forward_hook(lambda module, inputs, out: 2 * out)
    return net


@pytest.mark.parametrize(
    ("words", "net", "y", "options"),
    [
        ("nn.Module", print, Y, {}),
        ("tensor", model(), [[1.0]], {}),
        (r"y\[None\]", model(), Y[0], {}),
        ("at least one", model(), Y[:0], {}),
        ("NaN", model(), bad_y(math.nan), {}),
        ("infinite", model(), bad_y(math.inf), {}),
        ("float64", model(), Y.double(), {}),
        ("int64", model(), Y.long(), {}),
        ("float16", model().half(), Y.half(), {}),
        ("the network gives", model(), Y[:, :5], {}),
        ("reg is needed", model(), Y, {"reg": None}),
        ("fn and prox", model(), Y, {"reg": 3.0}),
        ("fn and prox", model(), Y, {"reg": tl.convex.TV}),
        ("alpha", model(), Y, {"alpha": 0.0}),
        ("alpha", model(), Y, {"alpha": -1.0}),
        ("alpha", model(), Y, {"alpha": "best"}),
        ("one of the two", model(), Y, {"alpha": 1.0, "noise": 0.1}),
        ("noise", model(), Y, {"noise": 0.0}),
        ("tol", model(), Y, {"tol": -1.0}),
        ("max_iter", model(), Y, {"max_iter": 0}),
        ("known: auto", model(), Y, {"method": "magic"}),
        ("does not go with", model(), Y, {"method": "bcd"}),
        ("does not go with", nn.Sequential(*model(), nn.Linear(6, 6)), Y, {"method": "pdhg"}),
        ("mu is an option of chains", model(), Y, {"mu": 2.0}),
        ("lam is an option of networks of Monotone", model(), Y, {"lam": 2.0}),
        ("lr is an option of the rivals", model(), Y, {"lr": 0.1}),
        ("blocks is an option of chains", Skip(), Y, {"blocks": tl.inversion.Blocks()}),
        ("shape", model(), Y, {"shape": (0,)}),
        ("does not take", model(), Y, {"shape": (3, 3)}),
        ("does not take", model(), Y, {"shape": (3, 3), "method": "adam"}),
        ("init", model(), Y, {"init": torch.zeros(2, 5), "shape": (4,)}),
        ("init", model(), Y, {"init": torch.full((2, 4), math.nan)}),
        ("box", model(), Y, {"box": 3}),
        ("below", model(), Y, {"box": (1.0, 0.0)}),
        ("pass shape=", nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()), torch.rand(1, 2, 2, 2), {}),
        (
            "method='bcd' needs a chain of layers, but Sequential does '1' .MaxPool2d.",
            nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2)),
            torch.rand(1, 2, 1, 1),
            {"shape": (1, 4, 4), "method": "bcd"},
        ),
        ("LayerNorm", nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6)), Y, {}),
        ("training mode", nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6)), Y, {}),
        ("training mode", nn.Sequential(nn.Linear(4, 6), nn.Dropout()), Y, {}),
        ("jumps", nn.Sequential(nn.Linear(4, 6), tl.lifted.Act("sign")), Y, {}),
        ("'add' across them", nn.Sequential(nn.Linear(4, 6), Skip()), Y, {"method": "bcd"}),
        ("does 'exp'", nn.Sequential(nn.Linear(4, 6), Exponential()), Y, {}),
        ("convex from lam=1 on", nn.Sequential(MonotoneResidual(6, 3)), Y, {"lam": 0.5}),
        ("besides its modules", hooked(), Y, {}),
        ("outside the range|reg is needed", Double(nn.Linear(4, 6), nn.ReLU()), Y, {"reg": None}),
        ("method='convex'", nn.Sequential(MonotoneResidual(6, 3)), Y, {"method": "fista"}),
        ("width 6", nn.Sequential(MonotoneResidual(6, 3)), Y[:, :5], {}),
        ("reg is None", nn.Sequential(MonotoneResidual(6, 3)), Y, {"reg": None, "noise": 0.1}),
    ],
)
def test_bad_input_raises_one_line(words: str, net: object, y: object, options: dict[str, object]) -> None:
    with pytest.raises(tl.TorchliftError, match=words) as caught:
        tl.invert(net, y, **{"reg": L2, "progress": False} | options)
    assert "\n" not in str(caught.value)


def test_a_module_used_twice_is_read_twice() -> None:
    torch.manual_seed(0)
    act = nn.LeakyReLU(0.3)
    net = nn.Sequential(nn.Linear(4, 6), act, nn.Linear(6, 6), act).double()
    x = torch.randn(1, 4, dtype=torch.float64)
    actual = tl.invert(net, net(x).detach(), reg=tl.convex.L2(1e-8), progress=False)
    assert actual.residual < 1e-3
    torch.testing.assert_close(actual.x, x, rtol=0, atol=1e-2)
