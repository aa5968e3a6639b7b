"""E(u, z) with its soft constraint: zero at the forward pass, monotone blocks, cost linear in depth."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import torchlift as tl
from torchlift import lifted
from torchlift.errors import TorchliftError
from torchlift.methods.lifted import Soft, SoftEnergy, States

LINEAR = lifted.activations.get("linear")


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def residual(depth: int = 3) -> lifted.ResidualNet:
    torch.manual_seed(0)
    return lifted.ResidualNet(4, 6, 5, depth, 3, "tanh").double()


def proximal(depth: int = 3, **options: object) -> lifted.ProximalNet:
    torch.manual_seed(0)
    return lifted.ProximalNet(4, 6, depth, tau=0.2, threshold=0.3, **options).double()


@pytest.mark.parametrize("make", [residual, proximal])
@torch.no_grad()
def test_no_block_raises_the_energy(make) -> None:
    net, x = make(), randn(12, 4)
    y = randn(*net(x).shape, seed=1)
    energy, states = SoftEnergy(net, x, y, LINEAR, 1.5, 0.7), States.of(net, x)
    gaps, ties, loss = energy.layer_energies(states)
    assert float(gaps.abs().max()) < 1e-12
    assert float(ties.abs().max()) < 1e-12
    value = float(loss)
    for _ in range(3):
        for index in reversed(range(len(states.z))):
            states.u[index + 1] = energy.u_step(states, index + 1, 1)
            assert float(energy.value(states)) <= value + 1e-12
            value = float(energy.value(states))
            states.z[index] = energy.z_step(states, index, 1)
            assert float(energy.value(states)) <= value + 1e-12
            value = float(energy.value(states))
    assert value < 0.98 * float(loss)


@torch.no_grad()
def test_a_tight_constraint_is_the_eliminated_energy() -> None:
    """With ρ → ∞ the states u follow from z: E(u, z) is the energy of the unified form."""
    net, x, y = residual(), randn(8, 4), randn(8, 3, seed=1)
    states = States.of(net, x)
    states.z = [z + 0.1 * randn(*z.shape, seed=2).clamp(-1, 1) * (1 - z.abs()) for z in states.z]
    for index, z in enumerate(states.z):
        states.u[index + 1] = net.following(index, states.u[index], z)
    soft = SoftEnergy(net, x, y, LINEAR, 1.5, 1e6).value(states)
    hard = lifted.unified.energy(net, x, y, states.z, 1.5, LINEAR).sum()
    assert float(soft) == pytest.approx(float(hard), rel=1e-9)


@pytest.mark.parametrize("make", [residual, proximal])
def test_soft_training_trains(make) -> None:
    net, x = make(), randn(60, 4)
    y = x[:, : net(x).shape[1]] * (x[:, : net(x).shape[1]].abs() > 0.5)
    before = float((net(x) - y).detach().square().mean())
    history = lifted.train(
        net, (x, y), method="soft", loss="mse", epochs=6, lr=2e-2, batch_size=20, valid=(x, y), progress=False
    ).history
    assert history[-1]["metric"] < 0.8 * before
    assert len(history[-1]["penalties"]) == 6


class Products(TorchDispatchMode):
    """Counts multiplications of matrices."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        del types
        if func.overloadpacket.__name__ in ("mm", "bmm", "addmm", "baddbmm"):
            left, right = args[-2:]
            self.count += left.numel() * right.shape[-1]
        return func(*args, **kwargs or {})


def test_cost_is_linear_in_depth() -> None:
    def cost(depth: int, method: Soft | lifted.UnifiedISGM) -> int:
        net = residual(depth)
        problem = method.problem(tl.Task(net, "mse"), LINEAR)
        with Products() as products:
            problem((randn(10, 4), randn(10, 3))).backward()
        return products.count

    soft = [cost(depth, Soft()) for depth in (5, 10, 20)]
    assert soft[2] - soft[1] == 2 * (soft[1] - soft[0])
    hard = [cost(depth, lifted.UnifiedISGM()) for depth in (5, 10, 20)]
    assert hard[2] > 3 * hard[1]


def test_proximal_nets_start_where_they_are_told() -> None:
    x = randn(5, 4)
    for first, learns in (("zero", False), ("learned", True), (torch.ones(6), False)):
        net = proximal(first=first)
        net(x).sum().backward()
        assert (net.first.grad is not None) == learns
        assert float(net.first.detach().sum()) == (6.0 if isinstance(first, Tensor) else 0.0)
    with pytest.raises(ValueError, match="'zero', 'learned' or a vector"):
        proximal(first="random")
    with pytest.raises(ValueError, match="first has 6 entries"):
        proximal(first=torch.ones(5))


def test_soft_names_what_it_needs() -> None:
    with pytest.raises(TorchliftError, match=r"needs a lifted\.Recursive network"):
        lifted.train(nn.Linear(4, 3), (randn(5, 4), randn(5, 3)), method="soft", loss="mse")
