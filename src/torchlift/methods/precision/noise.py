"""Noise as wide as a weight's grid: the node of learned precision."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from torchlift.core import Dial, Node, Stored
from torchlift.core.stored import weight_of
from torchlift.methods.precision.grids import (
    ADAM,
    allocate,
    as_levels,
    bits,
    integer,
    logit,
    most_bits,
    to_grid,
)
from torchlift.methods.sparsity import gates

GONE = 1e4
"""The logit of an entry that was cut before: it has no price and no gradient."""

ODD = 0x0001_0001_0001_0001
"""The last bit of each 16."""


@dataclasses.dataclass(frozen=True)
class Whole:
    """How learned precisions become whole bits; see :class:`torchlift.lifts.Precision`."""

    rounding: Literal["floor", "round"] = "floor"
    zero: bool = True
    levels: tuple[int, ...] | None = None


def uniform_noise(like: Tensor, scale: Tensor) -> Tensor:
    """Numbers in ±c: on the CPU odd multiples of 2⁻¹⁵ c, four of a draw, at a third of the time."""
    if like.device.type != "cpu":
        return torch.empty_like(like).uniform_(-1, 1).mul_(scale)
    count = like.numel()
    draws = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None).bitwise_or_(ODD)
    return draws.view(torch.int16)[:count].view(like.shape).to(like.dtype).mul_(2.0**-15 * scale)


class Noisy(Node):
    """w = v + c σ(s) ⊙ ε with ε ~ U(±1) drawn at every step; penalty λ Σ log₂(1 + e^(−s)).

    c is the weight's scale; |v| ≤ c (2 − σ(s)) after every step. For good: c Q(v/c, p), p = [p(s)].
    """

    options: Mapping[str, Mapping[str, Any]] = {"logit": {"optimizer": ADAM, "weight_decay": 0.0}}
    unliftable: ClassVar[tuple[str, ...]] = ("weight", "logit")
    scale: Tensor
    count: Tensor

    def __init__(
        self,
        weight: Tensor,
        grain: tuple[int, ...],
        scale: float,
        p_init: float,
        strength: float,
        whole: Whole,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.clone())
        self.logit = nn.Parameter(weight.new_full(gates.tiles(weight.shape, grain), float(logit(p_init))))
        self.register_buffer("scale", weight.new_tensor(scale))
        self.register_buffer("count", gates.tile_sums(torch.ones_like(weight), grain))
        self.grain, self.strength, self.whole, self.shift = grain, strength, whole, 0.0
        self.dead_zone = 0.0
        """Entries up to so many scales are zero, whatever their bits: how a target below one bit is met."""
        self.price: list[Dial] = []  # a list: of the nodes that share a price, the first registers it

    def over(self, values: Tensor) -> Tensor:
        """A value per logit, spread so that it meets the weight."""
        return gates.spread_tiles(values, self.weight.shape, self.grain)

    def forward(self) -> Tensor:
        """A draw while training, the weight itself otherwise."""
        weight = self.weight
        if not self.training:
            return weight
        return torch.addcmul(weight, self.over(torch.sigmoid(self.logit)), uniform_noise(weight, self.scale))

    def surrogate(self) -> Callable[[], Tensor] | None:
        """The forward at the draw that comes next."""
        if not self.training:
            return None
        with torch.random.fork_rng(devices=[]):
            noise = uniform_noise(self.weight, self.scale)
        return lambda: self.weight + self.over(torch.sigmoid(self.logit)) * noise

    def hold(self, mask: Tensor) -> None:
        """What is gone has no price."""
        with torch.no_grad():
            self.count.copy_(gates.tile_sums(mask.to(self.count), self.grain))
            self.logit.masked_fill_(self.count == 0, GONE)

    def penalty(self) -> Tensor | float:
        """λ Σ (p − 1) over the entries."""
        price = self.price[0]() if self.price else self.strength
        if isinstance(price, float) and not price:
            return 0.0
        logit = self.logit
        below = nn.functional.softplus(logit, beta=-1)  # −log(1 + e^(−s)), without a negated copy of s
        total = below.sum() if logit.shape == self.weight.shape else (below * self.count).sum()
        return total * (-price / math.log(2))

    def constrain(self) -> None:
        """Clip v to ±c (2 − σ(s)); that is beyond ±c, where often no weight is."""
        low, high = self.weight.aminmax()
        if low.device.type == "cpu" and max(-low.item(), high.item()) <= self.scale.item():
            return
        bound = self.over(self.scale * (2 - torch.sigmoid(self.logit)))
        self.weight.clamp_(-bound, bound)

    def whole_bits(self) -> Tensor:
        """[p(s)] of every entry, before any is allocated to zero."""
        with torch.no_grad():
            raw = integer(bits(self.logit) + self.shift, self.whole.rounding, self.whole.levels)
            return self.over(raw.clamp(1, most_bits(self.weight.dtype)))

    def precision(self) -> Tensor:
        """The integer bits of every entry, as the projection would allocate them; 0 where it is zero."""
        with torch.no_grad():
            bits = self.whole_bits().expand(self.weight.shape)
            if not self.whole.zero:
                return bits.masked_fill(self.over(self.count == 0), 0)
            unit = self.weight / self.scale
            if self.whole.levels is None:
                return allocate(unit, bits).masked_fill(unit.abs() <= self.dead_zone, 0)
            lost = gates.tile_sums((unit - to_grid(unit, bits)).square(), self.grain)
            gone = gates.tile_sums(unit.square(), self.grain) <= lost
            return bits.masked_fill(self.over(gone), 0)

    def stored(self) -> Stored:
        """c Q(v/c, p) as step and levels."""
        return as_levels(self.weight.detach(), self.precision(), self.scale)

    def project(self) -> Tensor:
        """c Q(v/c, p)."""
        return weight_of(self.stored(), self.weight.dtype)
