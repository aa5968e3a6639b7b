"""Targets that an activation does not tell apart: the box is right, and following it never loses."""

import pytest
import torch
from torch import Tensor, nn

import torchlift as tl
from torchlift.compress import stream, sweep
from torchlift.compress.free_targets import Freedom, freedoms


def norm(channels: int, seed: int) -> nn.BatchNorm2d:
    batch_norm = nn.BatchNorm2d(channels).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        batch_norm.weight.copy_(torch.randn(channels, generator=generator))
        batch_norm.bias.copy_(torch.randn(channels, generator=generator))
        batch_norm.running_mean.copy_(torch.randn(channels, generator=generator))
    return batch_norm


CHAINS: dict[str, list[nn.Module]] = {
    "clamp": [nn.ReLU()],
    "two-sided": [nn.ReLU6()],
    "norm first": [norm(6, 0), nn.Hardtanh(-0.5, 0.7)],
    "pool": [nn.ReLU(), nn.MaxPool2d(2)],
    "norm, pool": [nn.ReLU6(), norm(6, 1), nn.MaxPool2d((3, 2))],
    "norms and pool": [norm(6, 2), nn.ReLU(), norm(6, 3), nn.MaxPool2d(2)],
}


@pytest.mark.parametrize("name", CHAINS)
def test_what_is_in_the_box_is_passed_on_alike(name: str) -> None:
    rest = nn.Sequential(*CHAINS[name])
    model = nn.Sequential(nn.Conv2d(2, 6, 3, padding=1), rest, nn.Conv2d(6, 3, 1)).eval()
    y = 4 * torch.randn(3, 6, 7, 7, generator=torch.Generator().manual_seed(4))
    free = freedoms(model, (torch.randn(2, 2, 7, 7),))
    assert set(free) == {"0"}
    lower, upper = free["0"].box(model, y, 1)
    assert bool((lower <= upper).all())
    assert bool((lower < upper).any())
    with torch.no_grad():
        for seed in range(3):
            elsewhere = 20 * torch.randn(y.shape, generator=torch.Generator().manual_seed(seed))
            nearest = elsewhere.clamp(lower, upper)
            torch.testing.assert_close(rest(nearest), rest(y), atol=1e-5, rtol=1e-5)
        outside = torch.where(lower.isfinite(), lower, upper) + torch.where(lower.isfinite(), -0.5, 0.5)
        outside = torch.where(lower.isinf() & upper.isinf(), y, outside)
        assert float((rest(outside) - rest(y)).abs().max()) > 0.01  # the box is not larger than it may be


class Twice(nn.Module):
    """A layer whose output is read twice, one without an activation, and one that runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.read_twice, self.plain, self.again = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.read_twice(x)
        y = y.relu() + self.plain(y)
        return self.again(self.again(y).relu()).relu()


def test_what_others_see_is_not_free() -> None:
    assert freedoms(Twice().eval(), (torch.randn(2, 4),)) == {}


def test_overlapping_windows_leave_the_clamp_alone() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.ReLU(), nn.MaxPool2d(3, 2, 1)).eval()
    assert freedoms(model, (torch.randn(2, 1, 8, 8),)) == {"0": Freedom(0.0, torch.inf)}


def test_following_the_targets_brings_what_is_passed_on_nearer(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)).eval()
    x = torch.randn(256, 16)
    errors: list[float] = []
    for passes in (0, 1, 3):
        monkeypatch.setattr(sweep, "FREE_PASSES", passes)
        small = tl.compress(model, x, sparsity=0.6, progress=False, where="0.weight")
        with torch.no_grad():
            apart = model[1](model[0](x)) - small.model[1](small.model[0](x))
        errors.append(float(apart.square().sum()))
    assert errors[2] < errors[1] < errors[0]
    assert stream.FREE_PASSES > 0
