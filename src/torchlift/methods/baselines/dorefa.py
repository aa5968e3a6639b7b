"""Uniform weights by straight-through rounding (DoReFa), a rival of learned precision."""

import dataclasses
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from torchlift.core import Node, Stored, WeightLift
from torchlift.core.stored import weight_of
from torchlift.errors import TorchliftError


def squashed(w: Tensor) -> Tensor:
    """tanh(w) / (2 max |tanh(w)|) + ½ ∈ [0, 1]."""
    t = torch.tanh(w)
    return t / (2 * t.abs().max().clamp_min(torch.finfo(w.dtype).tiny)) + 0.5


def rounded_unit(r: Tensor, bits: int) -> Tensor:
    """[(2^k − 1) r] / (2^k − 1): one of 2^k values in [0, 1]."""
    top = 2**bits - 1
    return torch.round(top * r) / top


def dorefa(w: Tensor, bits: int, scale: Tensor) -> Tensor:
    """c (2 q_k(tanh(w) / (2 max |tanh(w)|) + ½) − 1); for one bit E|w| sign(w). Rounding has gradient 1."""
    if bits == 1:
        value = w.abs().mean() * torch.where(w < 0, -1.0, 1.0)
        return value.detach() + (w - w.detach())
    r = squashed(w)
    return scale * (2 * (rounded_unit(r, bits).detach() + (r - r.detach())) - 1)


class Squashed(Node):
    """w = c (2 q_k(…v…) − 1), the gradient of the rounding taken as 1."""

    scale: Tensor

    def __init__(self, weight: Tensor, bits: int) -> None:
        super().__init__()
        self.weight, self.bits = nn.Parameter(weight.clone()), bits
        self.register_buffer("scale", weight.abs().max())

    def forward(self) -> Tensor:
        """The quantized weight."""
        return dorefa(self.weight, self.bits, self.scale)

    def surrogate(self) -> Callable[[], Tensor]:
        """The forward with its rounding error fixed where it is."""
        with torch.no_grad():
            start = dorefa(self.weight, self.bits, self.scale)
            inner = self.weight if self.bits == 1 else self.scale * (2 * squashed(self.weight) - 1)
            error = start - inner
        if self.bits == 1:
            return lambda: self.weight + error
        return lambda: self.scale * (2 * squashed(self.weight) - 1) + error

    def stored(self) -> Stored:
        """c (2 q_k − 1) = c / (2^k − 1) · (2 [(2^k − 1) r] − (2^k − 1)); one bit is E|w| · ±1."""
        w, top = self.weight.detach(), 2**self.bits - 1
        if self.bits == 1:
            return Stored(torch.where(w < 0, -1, 1), w.abs().mean())
        levels = 2 * torch.round(top * squashed(w)) - top
        return Stored(levels.to(torch.int32), self.scale / top)

    def project(self) -> Tensor:
        """The quantized weight."""
        return weight_of(self.stored(), self.weight.dtype)


@dataclasses.dataclass(frozen=True)
class DoReFa(WeightLift):
    """min f(Q_k(v)) by the straight-through estimator, k ``bits`` for every weight (Zhou et al. 2016, eq. 9).

    The source's weights lie in ±1, which the norm after a layer hides; c = max |w| at the start keeps layers
    without one where they are. A baseline.
    """

    where: str = "*weight"
    bits: int = 4

    def __post_init__(self) -> None:
        if type(self.bits) is not int or not 1 <= self.bits <= 16:
            raise TorchliftError(f"bits is a whole number from 1 to 16, got {self.bits!r}.")

    @property
    def preserving(self) -> bool:
        """No: training starts on the grid."""
        return False

    def nodes(self, weights: Mapping[str, Tensor]) -> Mapping[str, Node]:
        """A quantized weight each."""
        return {name: Squashed(weight, self.bits) for name, weight in weights.items()}
