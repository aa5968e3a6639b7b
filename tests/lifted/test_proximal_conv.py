"""The convolutional proximal network: total variation is one of its points; lifted training runs it."""

import pytest
import torch

import torchlift as tl
from torchlift.lifted.unified import energy


def test_with_differences_it_is_total_variation() -> None:
    """Anisotropic TV denoising by 2,000 unrolled steps with fixed filters, up to the border."""
    net = tl.lifted.ProximalConvNet(filters=2, kernel=3, depth=2000, tau=0.12, threshold=0.2).double()
    with torch.no_grad():
        for bank in net.operators:
            bank.zero_()
            bank[0, 0, 1, 1], bank[0, 0, 1, 2] = -1, 1
            bank[1, 0, 1, 1], bank[1, 0, 2, 1] = -1, 1
    x = torch.zeros(1, 1, 16, 16, dtype=torch.float64)
    x[..., 5:11, 4:12] = 1.0
    noisy = x + 0.1 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noisy[..., 0] = noisy[..., -1] = noisy[..., 0, :] = noisy[..., -1, :] = 0  # outside the frame counts as 0
    with torch.no_grad():
        found = net(noisy)
    framed = torch.nn.functional.pad(noisy, (1, 1, 1, 1))
    wanted = tl.convex.TV(0.2, isotropic=False).prox(framed)[..., 1:-1, 1:-1]
    assert float((found - wanted).abs().max()) < 0.05


def test_lifted_steps_lower_the_denoising_error() -> None:
    torch.manual_seed(0)
    net = tl.lifted.ProximalConvNet(filters=4, kernel=3, depth=2)
    x = torch.zeros(4, 1, 12, 12)
    x[..., 3:9, 3:9] = 1.0
    noisy = x + 0.2 * torch.randn_like(x)
    linear = tl.lifted.activations.get("linear")
    before = float((net(noisy) - x).detach().square().sum())
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    method = tl.lifted.UnifiedISGM(rounds=1, inner=1)
    problem = method.problem(tl.Task(net, "mse"), "bregman", 1.0, linear)
    for _ in range(15):
        optimizer.zero_grad()
        problem((noisy, x)).backward()
        optimizer.step()
    assert float((net(noisy) - x).detach().square().sum()) < before
    with torch.no_grad():
        parts = energy(net, noisy, x, net.states(noisy), 1.0, linear)
    assert float(parts[:-1].sum()) == pytest.approx(0.0, abs=1e-6)  # the forward pass has no penalty


def test_an_even_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="odd"):
        tl.lifted.ProximalConvNet(kernel=4)
