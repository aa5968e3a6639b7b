"""Polishing: on variations that the original hardly notices, chosen by inputs that are held out."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlift as tl
from torchlift.compress.polish import split_off
from torchlift.compress.variations import Variations


class Even(nn.Module):
    """The same for x and −x, and wherever along the line x is."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x.square().mean(1), x.abs().amax(1)], 1)


class Odd(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, :3] * torch.linspace(1, 2, 3)


def kinds(model: nn.Module, x: Tensor) -> list[str]:
    return [getattr(vary, "func", vary).__name__ for vary in Variations.of(model, x).used]


def test_variations_are_those_the_network_hardly_notices() -> None:
    x = torch.randn(64, 32) * torch.linspace(0.1, 4, 64)[:, None]
    assert {"negated", "mirrored", "moved"} <= set(kinds(Even(), x))
    assert not {"negated", "mirrored", "moved"} & set(kinds(Odd(), x))
    assert kinds(Even(), torch.ones(64, 32, dtype=torch.int64)) == []
    varied = Variations.of(Even(), x)(x)
    assert varied.shape == x.shape
    assert not torch.equal(varied, x)


def test_every_eighth_sample_is_split_off() -> None:
    x = torch.arange(40.0)[:, None]
    (train, _), unseen = split_off((x, x))
    assert unseen is not None
    assert (len(train), len(unseen[0])) == (35, 5)
    assert sorted([*train.flatten().tolist(), *unseen[0].flatten().tolist()]) == x.flatten().tolist()
    assert split_off((x[:16], x[:16]))[1] is None


@pytest.mark.parametrize("last", [nn.Identity(), nn.Sigmoid()])
def test_polishing_comes_nearer_on_inputs_it_never_saw(last: nn.Module) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 12), nn.Tanh(), nn.Linear(12, 3), last)
    x, unseen = torch.randn(512, 6), torch.randn(512, 6)

    def missed(**options: Any) -> float:
        small = tl.compress(model.eval(), x, ratio=0.5, progress=False, **options).model
        with torch.no_grad():
            return float((small(unseen) - model(unseen)).square().mean())

    assert missed(polish=15) < 0.95 * missed()
