"""Several layers, residual networks and the rivals."""

import pytest
import torch
from torch import nn

import torchlift as tl
from torchlift.inversion import MonotoneResidual, deep, reading

F64 = torch.float64


def interpolation() -> nn.Sequential:
    """25 ReLUs that interpolate u(2u/3)^{3u} on [0, 1.5] (the worked example of the lecture notes)."""
    knots = torch.arange(25, dtype=F64) * 3 / 50
    ends = torch.cat([knots, torch.tensor([1.5], dtype=F64)])
    values = ends * (2 * ends / 3) ** (3 * ends)
    slopes = values.diff() / ends.diff()
    model = nn.Sequential(nn.Linear(1, 25), nn.ReLU(), nn.Linear(25, 1, bias=False)).double()
    with torch.no_grad():
        model[0].weight.fill_(1.0)
        model[0].bias.copy_(-knots)
        model[2].weight.copy_(torch.cat([slopes[:1], slopes.diff()])[None])
    return model


def test_the_worked_example() -> None:
    model = interpolation()
    u = torch.tensor([[0.9], [1.2], [1.4]], dtype=F64)
    y, reg = model(u).detach(), tl.convex.L2(1e-4)
    start = tl.invert(model, y, reg=reg, progress=False).x
    actual = tl.invert(
        model, y, reg=reg, init=start, blocks=deep.Blocks(decades=0), method="bcd", progress=False
    )
    wanted = torch.tensor([[0.8995], [1.1999], [1.4000]], dtype=F64)
    torch.testing.assert_close(actual.x, wanted, rtol=0, atol=1e-4)


def encoder() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3, stride=2, padding=1), nn.LeakyReLU(0.2),
        nn.Flatten(), nn.Linear(96, 80), nn.Sigmoid(),
    ).double()  # fmt: skip
    with torch.no_grad():
        model[0].weight.normal_(std=0.5)
        model[3].weight.normal_(std=0.2)
    return model.eval()


def blob() -> torch.Tensor:
    x = torch.zeros(2, 1, 8, 8, dtype=F64)
    x[0, 0, 2:6, 3:6] = 1
    x[1, 0, 1:3, 1:7] = 0.8
    return x


def test_sweeps_never_end_above_where_they_start() -> None:
    model, x = encoder(), blob()
    with torch.no_grad():
        y, reg, box = model(x), tl.convex.TV(1e-3), tl.convex.Box(0.0, 1.0)
        stages, blocks = (
            reading.read_stages(reading.affine_graph(model), (1, 8, 8), x),
            deep.Blocks(decades=0),
        )
        u, z = deep.best_start(stages, y, reg, box, None, blocks)
        first = deep.block_energy(stages, 1.0, reg, box, u, z)
        stopping = tl.convex.Stopping(max_iter=60)
        actual = deep.descend_blocks(stages, y, reg, box, None, stopping, blocks)
    assert bool((actual.objective <= first).all())
    assert float(actual.objective.sum()) < 0.5 * float(first.sum())
    assert not actual.converged


@pytest.mark.parametrize("method", ["auto", "bcd", "adam", "lbfgs"])
def test_a_deep_encoder_comes_back(method: str) -> None:
    model, x = encoder(), blob()
    with torch.no_grad():
        y, blank = model(x), model(torch.zeros_like(x))
    start = float(x.square().sum())
    actual = tl.invert(
        model,
        y,
        reg=tl.convex.TV(1e-5),
        shape=(1, 8, 8),
        box=(0.0, 1.0),
        method=method,
        max_iter=300,
        progress=False,
    )
    assert actual.x.shape == x.shape
    assert actual.gap is None
    assert actual.residual < 0.2 * float((blank - y).norm())
    assert float((actual.x - x).square().sum()) < start
    assert [row[0] for row in actual.history] == sorted(row[0] for row in actual.history)


def test_the_better_start_wins_sample_by_sample() -> None:
    model, x = encoder(), blob()
    y = model(x).detach()
    options = {
        "reg": tl.convex.TV(1e-5),
        "shape": (1, 8, 8),
        "box": (0.0, 1.0),
        "max_iter": 60,
        "progress": False,
    }
    raced = tl.invert(model, y, **options)
    zero = tl.invert(model, y, init=torch.zeros_like(x), **options)
    assert raced.objective <= 1.05 * zero.objective


def residual(activation: list[str]) -> nn.Sequential:
    torch.manual_seed(1)
    net = nn.Sequential(*(MonotoneResidual(12, 8, name) for name in activation)).double()
    for block in net:
        nn.init.normal_(block.bias, std=0.3)
    return net


@pytest.mark.parametrize("names", [["relu"], ["relu", "tanh", "leaky_relu"], ["sigmoid"] * 5])
def test_residual_networks_have_an_exact_inverse(names: list[str]) -> None:
    net, x = residual(names), torch.randn(4, 12, dtype=F64)
    actual = tl.invert(net, net(x).detach(), tol=1e-14, progress=False)
    assert actual.converged
    assert actual.alpha is None
    assert actual.gap < 1e-10
    torch.testing.assert_close(actual.x, x, rtol=0, atol=1e-5)


def test_the_residual_energy_is_convex_along_lines_and_equals_its_definition() -> None:
    from torchlift.convex.functions import Zero
    from torchlift.inversion.residual import ResidualEnergy, StatePotential

    net, y = residual(["relu", "tanh"]), torch.randn(3, 12, dtype=F64)
    blocks = list(net)
    energy, states = ResidualEnergy(blocks, y), StatePotential(blocks, Zero(), (12,))
    total = lambda x: (energy.value(x) + states.fn(x)).detach()

    def point(seed: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        u, a, b = (torch.randn(3, k, generator=generator, dtype=F64) for k in (12, 8, 8))
        return torch.cat([u, a.abs(), b.tanh()], 1)

    p, q = point(0), point(1)
    assert bool((total((p + q) / 2) <= (total(p) + total(q)) / 2 + 1e-12).all())
    u0, z1, z2 = p.split([12, 8, 8], 1)
    u1 = u0 + z1 @ blocks[0].weight
    u2 = u1 + z2 @ blocks[1].weight
    plain = (u2 - y).square().sum(1) / 2
    for block, u, z in ((blocks[0], u0, z1), (blocks[1], u1, z2)):
        plain = plain + block.act.penalty(z, u @ block.weight.mT + block.bias).sum(1)
    torch.testing.assert_close(total(p), plain.detach())
    x = p.clone().requires_grad_()
    torch.testing.assert_close(energy.gradient(p), torch.autograd.grad(energy.value(x).sum(), x)[0])


def test_residual_networks_with_noise_and_a_regularizer() -> None:
    net, x = residual(["relu", "relu"]), torch.zeros(2, 12, dtype=F64)
    x[:, 3:7] = 1.0
    y = net(x).detach() + 0.05 * torch.randn(2, 12, dtype=F64)
    plain = tl.invert(net, y, progress=False)
    smooth = tl.invert(net, y, reg=tl.convex.TV(0.05), progress=False)
    assert (smooth.x - x).norm() < (plain.x - x).norm()


def test_psnr_and_ssim() -> None:
    x = torch.rand(2, 1, 32, 32, dtype=F64)
    torch.testing.assert_close(tl.inversion.psnr(x + 0.1, x), torch.full((2,), 20.0, dtype=F64))
    torch.testing.assert_close(tl.inversion.ssim(x, x), torch.ones(2, dtype=F64))
    a, b = torch.full((1, 16, 16), 0.4, dtype=F64), torch.full((1, 16, 16), 0.6, dtype=F64)
    flat = (2 * 0.24 + 1e-4) / (0.16 + 0.36 + 1e-4)  # no contrast: the luminance term alone
    torch.testing.assert_close(tl.inversion.ssim(a, b), torch.tensor([flat], dtype=F64))
    worse = [float(tl.inversion.ssim(x + s * torch.randn_like(x), x).mean()) for s in (0.05, 0.2, 0.8)]
    assert worse == sorted(worse, reverse=True)
    with pytest.raises(tl.TorchliftError, match="differ"):
        tl.inversion.psnr(x, x[:1])
