"""Algorithms 1 and 2 step by step against plain loops: as the thesis prints them, as the published code."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import torchlift as tl
from torchlift.recipes import ContinuousSparsification, TicketSearch

EPOCHS, RATE, MOMENTUM, STRENGTH, BETA, START = 6, 0.5, 0.9, 1e-2, 50.0, 0.02


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(16, 5, generator=generator).double()
    return x, x @ torch.randn(5, 3, generator=generator).double()


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Linear(5, 3, bias=False).double()


class Reference:
    """v, s and their momentum, by hand; one step per epoch on all data."""

    def __init__(self, variant: str) -> None:
        self.variant = variant
        self.v, self.s = model().weight.detach().clone(), torch.full((3, 5), START).double()
        self.dv, self.ds = torch.zeros(3, 5).double(), torch.zeros(3, 5).double()
        published = variant == "published"
        self.scale = 1 / torch.sigmoid(torch.tensor(START).double()).item() if published else 1.0

    def temperature(self, step: int) -> float:
        """Thesis: β is multiplied by β_final^(1/T) after each step. Published: β_final^(e / (E − 1))."""
        return BETA ** (step / EPOCHS if self.variant == "thesis" else step / (EPOCHS - 1))

    def round(self) -> list[Tensor]:
        """A round; the weights at the end of each epoch."""
        ends: list[Tensor] = []
        for step in range(EPOCHS):
            v, s = self.v.clone().requires_grad_(), self.s.clone().requires_grad_()
            gate = self.scale * torch.sigmoid(self.temperature(step) * s)
            x, y = data()
            loss = (x @ (gate * v).T - y).square().mean() + STRENGTH * gate.sum()
            gv, gs = torch.autograd.grad(loss, (v, s))
            self.dv, self.ds = MOMENTUM * self.dv + gv, MOMENTUM * self.ds + gs
            self.v, self.s = self.v - RATE * self.dv, self.s - RATE * self.ds
            ends.append(self.v.clone())
        return ends

    def between(self) -> None:
        """Thesis: s ← min(β s, s_init). Published: β is 1 again by then."""
        factor = BETA if self.variant == "thesis" else 1.0
        self.s = torch.minimum(factor * self.s, torch.tensor(START).double())

    def mask(self) -> Tensor:
        return self.s >= 0 if self.variant == "thesis" else self.s > 0


def trained(weight: Tensor) -> Tensor:
    """Plain training of what is left."""
    mask, speed = weight != 0, torch.zeros_like(weight)
    x, y = data()
    for _ in range(EPOCHS):
        w = weight.clone().requires_grad_()
        (gradient,) = torch.autograd.grad((x @ w.T - y).square().mean(), w)
        speed = MOMENTUM * speed + gradient * mask
        weight = weight - RATE * speed
    return weight


def fitted(recipe, epochs: int):
    sgd = partial(torch.optim.SGD, lr=RATE, momentum=MOMENTUM)
    settings = {"optimizer": sgd, "batch_size": 16, "loss": "mse", "progress": False}
    return tl.fit(model(), data(), recipe=recipe, epochs=epochs, **settings).model.weight.detach()


@pytest.mark.parametrize("variant", ["thesis", "published"])
def test_algorithm_1(variant):
    options = {"beta_final": BETA, "strength": STRENGTH, "s_init": START, "variant": variant}
    actual = fitted(ContinuousSparsification(finetune=0.0, **options), EPOCHS)
    want = Reference(variant)
    want.round()
    assert 0 < int(want.mask().sum()) < 15
    assert_close(actual, want.scale * want.v * want.mask(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("variant", ["thesis", "published"])
def test_algorithm_2(variant):
    options = {"beta_final": BETA, "strength": STRENGTH, "s_init": START, "variant": variant}
    actual = fitted(TicketSearch(rounds=3, rewind=2, **options), 4 * EPOCHS)
    want = Reference(variant)
    early = want.round()[1]
    for _ in range(2):
        want.between()
        want.round()
    assert 0 < int(want.mask().sum()) < 15
    assert_close(actual, trained(want.scale * early * want.mask()), atol=1e-5, rtol=0)
