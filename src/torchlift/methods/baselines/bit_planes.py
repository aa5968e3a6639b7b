"""Bit planes under a group lasso (BSQ), a rival of learned precision: one precision per layer."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from torchlift.core import Node, SteppedDial, Stored, WeightLift
from torchlift.core.stored import weight_of
from torchlift.errors import TorchliftError


def planes_of(whole: Tensor, count: int) -> Tensor:
    """The binary digits of non-negative integers, least first: (count, *shape)."""
    powers = 2 ** torch.arange(count, device=whole.device)
    return (whole.long()[None] // powers.view(-1, *(1,) * whole.ndim) % 2).to(whole.dtype)


def plane_norms(positive: Tensor, negative: Tensor) -> Tensor:
    """√(1e−8 + ‖plane b‖²) of each plane, both signs together."""
    return (1e-8 + positive.flatten(1).square().sum(1) + negative.flatten(1).square().sum(1)).sqrt()


class Requantize(SteppedDial):
    """At ``rounds`` instants of a fit planes become binary again, and those that are empty are dropped."""

    def __init__(self, planes: "Planes", rounds: int) -> None:
        super().__init__(0.0, rounds)
        self.planes = [planes]  # a list: the planes stay where they are

    def move(self, t: float, before: int) -> None:
        """Requantize."""
        del t, before
        self.planes[0].requantize()


class Planes(Node):
    """w = c/(2^n − 1) [Σ_b 2^b (v⁺_b − v⁻_b)], planes in [0, 2], under a group lasso; straight through."""

    unliftable: ClassVar[tuple[str, ...]] = ("positive", "negative")

    options: Mapping[str, Mapping[str, Any]] = {
        "positive": {"weight_decay": 0.0},
        "negative": {"weight_decay": 0.0},
    }
    scale: Tensor
    alive: Tensor

    def __init__(self, weight: Tensor, bits: int, price: float, rounds: int) -> None:
        super().__init__()
        top = 2**bits - 1
        scale = weight.abs().max().clamp_min(torch.finfo(weight.dtype).tiny)
        whole = torch.round(weight / scale * top)
        self.positive = nn.Parameter(planes_of(whole.clamp_min(0), bits + 1))  # planes up to 2 may carry over
        self.negative = nn.Parameter(planes_of((-whole).clamp_min(0), bits + 1))
        self.register_buffer("scale", scale / top)
        self.register_buffer("alive", torch.arange(bits + 1) < bits)
        self.price = price
        self.again = Requantize(self, rounds)

    def total(self) -> Tensor:
        """Σ_b 2^b (v⁺_b − v⁻_b)."""
        count = len(self.alive)
        powers = self.alive * 2.0 ** torch.arange(count, device=self.alive.device)
        return torch.tensordot(powers.to(self.positive.dtype), self.positive - self.negative, 1)

    def forward(self) -> Tensor:
        """The quantized weight."""
        total = self.total()
        return self.scale * (torch.round(total).detach() + (total - total.detach()))

    def surrogate(self) -> Callable[[], Tensor]:
        """The forward with its rounding error fixed where it is."""
        with torch.no_grad():
            error = torch.round(self.total()) - self.total()
        return lambda: self.scale * (self.total() + error)

    def bits(self) -> int:
        """The planes between the lowest and the highest that is not empty."""
        used = (
            planes_of(torch.round(self.total().detach()).abs(), len(self.alive)).flatten(1).any(1).nonzero()
        )
        return int(used.max() - used.min()) + 1 if used.numel() else 0

    def penalty(self) -> Tensor | float:
        """price · (planes alive) · (entries) · Σ_b ‖plane b‖."""
        lasso = (plane_norms(self.positive, self.negative) * self.alive).sum()
        return self.price * self.positive[0].numel() * self.alive.sum() * lasso

    def constrain(self) -> None:
        """Planes stay in [0, 2]; dropped ones at 0."""
        alive = self.alive.view(-1, *(1,) * (self.positive.ndim - 1))
        for planes in (self.positive, self.negative):
            planes.clamp_(0, 2).mul_(alive)

    @torch.no_grad()
    def requantize(self) -> None:
        """Planes as the digits of the rounded weight; empty ones at both ends are dropped."""
        count = len(self.alive)
        whole = torch.round(self.total()).clamp(1 - 2**count, 2**count - 1)
        self.positive.copy_(planes_of(whole.clamp_min(0), count))
        self.negative.copy_(planes_of((-whole).clamp_min(0), count))
        used = planes_of(whole.abs(), count).flatten(1).any(1)
        indices = used.nonzero()
        order = torch.arange(count, device=used.device)
        if indices.numel():
            self.alive.copy_((order >= indices.min()) & (order <= indices.max()))
        else:
            self.alive.zero_()

    def stored(self) -> Stored:
        """[Σ_b 2^b (v⁺_b − v⁻_b)] and c / (2^n − 1)."""
        return Stored(torch.round(self.total().detach()).to(torch.int32), self.scale)

    def project(self) -> Tensor:
        """The quantized weight."""
        return weight_of(self.stored(), self.positive.dtype)


@dataclasses.dataclass(frozen=True)
class BitPlanes(WeightLift):
    """min over planes of f(w(planes)) + (λ/N) Σ_layers n_l N_l Σ_b ‖plane b of layer l‖.

    BSQ (Yang et al. 2021), N weights in all, N_l of layer l in n_l planes. Planes are requantized, and empty
    ones dropped, ``rounds`` times in a fit. :class:`torchlift.recipes.Bsq` adds the fine-tuning. A baseline.
    """

    where: str = "*weight"
    bits: int = 8
    strength: float = 5e-3
    rounds: int = 10
    prunes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if type(self.bits) is not int or not 1 <= self.bits <= 15:
            raise TorchliftError(f"bits is a whole number from 1 to 15, got {self.bits!r}.")

    @property
    def preserving(self) -> bool:
        """No: training starts on a grid of ``bits``."""
        return False

    def nodes(self, weights: Mapping[str, Tensor]) -> Mapping[str, Node]:
        """The planes of each weight."""
        price = self.strength / sum(w.numel() for w in weights.values())
        return {name: Planes(w, self.bits, price, self.rounds) for name, w in weights.items()}
