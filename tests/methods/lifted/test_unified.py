"""Residual and proximal networks through K, M, V, W."""

import pytest
import torch
from torch import Tensor, nn

from torchlift import lifted
from torchlift.convex.activations import Linear, get
from torchlift.methods.lifted import ProximalNet, ResidualNet, Unified, UnifiedISGM
from torchlift.methods.lifted.unified import energy


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def residual() -> Unified:
    torch.manual_seed(0)
    return ResidualNet(4, 6, 5, 3, 2, "tanh").double()


def proximal() -> Unified:
    torch.manual_seed(0)
    return ProximalNet(6, 9, 3, threshold=0.3).double()


NETS = {"residual": (residual, 4, 2), "proximal": (proximal, 6, 6)}


def test_the_residual_form_is_the_residual_network() -> None:
    net, x = residual(), randn(5, 4)
    u = net.embed(x)
    for inward, outward in zip(net.inward, net.outward, strict=True):
        u = u + outward(torch.tanh(inward(u)))
    assert torch.allclose(net(x), net.head(u))


def test_the_proximal_form_is_dual_forward_backward() -> None:
    """With one operator and many steps the output solves min ½‖w − x‖² + t‖Lw‖₁."""
    net, x = ProximalNet(6, 9, 2000, tau=0.1, threshold=0.3).double(), randn(3, 6)
    with torch.no_grad():
        for operator in net.operators:
            operator.copy_(net.operators[0])
        w, operator = net(x), net.operators[0]
    operator = operator.detach()
    image = w @ operator.mT
    z = torch.linalg.lstsq(operator.mT, (x - w).mT).solution  # x − w = Lᵀz with |z| ≤ t
    assert float((operator.mT @ z - (x - w).mT).abs().max()) < 1e-9
    gap = 0.3 * image.abs().sum(1) - ((x - w) * w).sum(1)  # ⟨x − w, w⟩ = t‖Lw‖₁ at the optimum
    assert gap.abs().max() < 1e-6


@pytest.mark.parametrize("name", NETS)
def test_the_forward_pass_has_no_energy(name: str) -> None:
    make, inputs, _ = NETS[name]
    net, x = make(), randn(7, inputs)
    with torch.no_grad():
        parts = energy(net, x, net(x), net.states(x), 2.0, Linear())
    assert parts.abs().max() < 1e-12


@pytest.mark.parametrize("name", NETS)
@torch.no_grad()
def test_state_steps_never_raise_the_energy(name: str) -> None:
    make, inputs, outputs = NETS[name]
    net, x, y = make(), randn(9, inputs), randn(9, outputs, seed=1)
    method, z = UnifiedISGM(inner=1), net.states(x)
    value = start = float(energy(net, x, y, z, 1.5, Linear()).sum())
    for _ in range(2):
        for index in reversed(range(len(z))):
            z[index] = method.state(net, index, x, y, z, 1.5, Linear())
            new = float(energy(net, x, y, z, 1.5, Linear()).sum())
            assert new <= value + 1e-10
            value = new
    assert value < start


@pytest.mark.parametrize("name", NETS)
def test_both_train(name: str) -> None:
    make, inputs, outputs = NETS[name]
    net, x = make(), randn(120, inputs)
    y = x[:, :outputs] * (x[:, :outputs].abs() > 0.5)
    before = float((net(x) - y).detach().square().mean())
    method = UnifiedISGM(lr=2e-2, batch_size=40)
    result = lifted.train(
        net, (x, y), method=method, loss="mse", epochs=6, mu=3.0, progress=False, valid=(x, y)
    )
    assert result.history[-1]["metric"] < 0.8 * before
    assert len(result.history[-1]["penalties"]) == 3


def test_classification_with_cross_entropy() -> None:
    torch.manual_seed(0)
    net = ResidualNet(4, 8, 8, 2, 3, get("relu")).double()
    x = randn(90, 4)
    labels = x[:, :3].argmax(1)
    hot = torch.nn.functional.one_hot(labels, 3).double()
    lifted.train(net, (x, hot), method="unified", lr=1e-2, batch_size=30, epochs=15, progress=False)
    assert float((net(x).argmax(1) == labels).double().mean()) > 0.85


class Block(nn.Module):
    """The residual block of image networks, in-place addition and functional ReLU included."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.act = nn.ReLU(inplace=True)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        out = self.second(self.act(self.norm(self.first(x))))
        out += x
        return torch.relu(out)


def small_resnet() -> nn.Module:
    torch.manual_seed(0)
    blocks = [nn.Conv2d(1, 4, 3), lifted.Act("leaky_relu", slope=0.1), Block(4), nn.AvgPool2d(2), Block(4)]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(16, 3)).double().eval()


def test_an_ordinary_residual_network_is_read_whole() -> None:
    net, x = small_resnet(), randn(5, 1, 6, 6)
    unified = lifted.Traced(net)
    assert [type(a).__name__ for a in unified.activations] == ["LeakyReLU", "Clip", "Clip", "Clip", "Clip"]
    states = unified.states(x)
    before = [state.clone() for state in states]
    assert torch.allclose(unified.preactivations(x, states)[-1], net(x))
    assert all(torch.equal(a, b) for a, b in zip(states, before, strict=True))
    parts = energy(unified, x, net(x), states, 1.0, Linear())
    assert parts.abs().max() < 1e-12


@torch.no_grad()
def test_state_steps_of_an_ordinary_residual_network_never_raise_the_energy() -> None:
    net, x, y = lifted.Traced(small_resnet()), randn(6, 1, 6, 6), randn(6, 3, seed=1)
    method, z = UnifiedISGM(inner=1), net.states(x)
    value = start = float(energy(net, x, y, z, 1.5, Linear()).sum())
    for index in reversed(range(len(z))):
        z[index] = method.state(net, index, x, y, z, 1.5, Linear())
        new = float(energy(net, x, y, z, 1.5, Linear()).sum())
        assert new <= value + 1e-10
        value = new
    assert value < start


def test_train_takes_residual_networks_of_either_kind() -> None:
    x = randn(60, 1, 6, 6)
    y = (x.mean((1, 2, 3)) > 0).long()
    for net, inputs in ((small_resnet(), x), (ResidualNet(36, 8, 8, 2, 3).double(), x.flatten(1))):
        before = float(nn.functional.cross_entropy(net(inputs), y).detach())
        options = {"mu": 3.0, "epochs": 3, "lr": 2e-2, "batch_size": 20, "progress": False}
        result = lifted.train(net, (inputs, y), method="unified", **options)
        assert result.model is net
        assert float(nn.functional.cross_entropy(net(inputs), y).detach()) < 0.8 * before


class Product(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x) * self.b(x)


def test_what_is_not_affine_is_named() -> None:
    x, y = randn(5, 4), torch.zeros(5, dtype=torch.long)
    with pytest.raises(ValueError, match="Product does 'mul', which is not known as affine"):
        lifted.train(Product().double(), (x, y))
    with pytest.raises(ValueError, match=r"'2.norm' .BatchNorm2d. is in training mode"):
        lifted.train(small_resnet().train(), (randn(5, 1, 6, 6), y))
    with pytest.raises(ValueError, match=r"ResidualNet does 'add' .* 'contrastive' and 'unified' take"):
        lifted.train(ResidualNet(4, 4, 4, 1, 2).double(), (x, y), method="bcd")
