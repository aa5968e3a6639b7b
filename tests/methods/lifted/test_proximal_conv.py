"""The convolutional proximal network: total variation is one of its points; lifted training runs it."""

import pytest
import torch

import torchlift as tl


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
        actual = net(noisy)
    framed = torch.nn.functional.pad(noisy, (1, 1, 1, 1))
    wanted = tl.convex.TV(0.2, isotropic=False).prox(framed)[..., 1:-1, 1:-1]
    assert float((actual - wanted).abs().max()) < 0.05


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
    problem = method.problem(tl.Task(net, "mse"), linear)
    for _ in range(15):
        optimizer.zero_grad()
        problem((noisy, x)).backward()
        optimizer.step()
    assert float((net(noisy) - x).detach().square().sum()) < before


def test_an_even_kernel_raises() -> None:
    with pytest.raises(ValueError, match="odd"):
        tl.lifted.ProximalConvNet(kernel=4)


def test_unrolled_with_differences_it_is_total_variation_of_a_blurred_image() -> None:
    """1,500 unrolled steps end at the minimum of ½‖A u − y‖² + t·TV: convex, and all around is higher."""
    blur = tl.convex.operators.Blur(tl.convex.operators.gaussian_kernel(1.0, 2))
    net = tl.lifted.UnrolledNet(blur, 2, 3, depth=1500, threshold=0.02, step=0.06).double()
    with torch.no_grad():
        for bank in net.operators:
            bank.zero_()
            bank[0, 0, 1, 1], bank[0, 0, 1, 2] = -1, 1
            bank[1, 0, 1, 1], bank[1, 0, 2, 1] = -1, 1
    x = torch.zeros(1, 1, 12, 12, dtype=torch.float64)
    x[..., 4:8, 3:9] = 1.0
    y = blur.A(x) + 0.02 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=x.dtype)

    def value(u: torch.Tensor) -> float:
        slopes = torch.nn.functional.conv2d(u, net.operators[0].detach(), padding=1)
        return float((blur.A(u) - y).square().sum() / 2 + 0.02 * slopes.abs().sum())

    with torch.no_grad():
        actual = net(y)
    around = [actual + 1e-3 * torch.randn_like(actual) for _ in range(20)]
    assert value(actual) < min(value(other) for other in around)
    assert value(actual) < min(value(y), value(x))


@pytest.mark.parametrize("operator", ["blur", "mask"])
def test_unrolled_networks_train_by_lifted_steps(operator: str) -> None:
    torch.manual_seed(0)
    x = torch.zeros(4, 1, 12, 12)
    x[..., 3:9, 3:9] = 1.0
    parts = tl.convex.operators
    seen = {"blur": parts.Blur(parts.motion_kernel(5, 30.0)), "mask": parts.Mask(torch.rand(x.shape) < 0.5)}
    net = tl.lifted.UnrolledNet(seen[operator], filters=4, kernel=3, depth=2, threshold=0.02)
    y = seen[operator].A(x)
    linear = tl.lifted.activations.get("linear")
    before = float((net(y) - x).detach().square().sum())
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    method = tl.lifted.UnifiedISGM(rounds=1, inner=1)
    problem = method.problem(tl.Task(net, "mse"), linear)
    for _ in range(15):
        optimizer.zero_grad()
        problem((y, x)).backward()
        optimizer.step()
    assert float((net(y) - x).detach().square().sum()) < before


def test_unrolled_rejects_an_even_kernel() -> None:
    with pytest.raises(ValueError, match="odd"):
        tl.lifted.UnrolledNet(tl.convex.operators.Identity(), kernel=4)
