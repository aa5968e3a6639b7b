"""Learned step sizes (LSQ), a rival of learned precision."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from torchlift.core import Node, Stored, WeightLift
from torchlift.core.stored import weight_of
from torchlift.errors import TorchliftError


def lsq(v: Tensor, step: Tensor, low: int, high: int) -> Tensor:
    """s [clip(v/s, low, high)]; gradient to v 1 inside, 0 outside; to s [v/s] − v/s inside, the end there."""
    ratio = (v / step).clamp(low, high)
    whole = torch.round(ratio).detach() + (ratio - ratio.detach())
    return whole * step


def scaled_gradient(x: Tensor, factor: float) -> Tensor:
    """x, its gradient times the factor."""
    return x.detach() + factor * (x - x.detach())


class Stepped(Node):
    """w = s [clip(v/s, −2^(k−1), 2^(k−1) − 1)], s learned with its gradient times 1/√(n (2^(k−1) − 1))."""

    unliftable: ClassVar[tuple[str, ...]] = ("weight", "step")

    options: Mapping[str, Mapping[str, Any]] = {"step": {"weight_decay": 0.0}}

    def __init__(self, weight: Tensor, bits: int) -> None:
        super().__init__()
        self.low, self.high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        self.weight = nn.Parameter(weight.clone())
        start = 2 * weight.abs().mean() / math.sqrt(self.high)
        self.step = nn.Parameter(start.clamp_min(torch.finfo(weight.dtype).tiny))
        self.factor = 1 / math.sqrt(weight.numel() * self.high)

    def forward(self) -> Tensor:
        """The quantized weight."""
        return lsq(self.weight, scaled_gradient(self.step, self.factor), self.low, self.high)

    def surrogate(self) -> Callable[[], Tensor]:
        """Roundings and clips fixed where they are; the step's change at its own rate."""
        with torch.no_grad():
            start, ratio = self.step.clone(), self.weight / self.step
            inside = (ratio > self.low) & (ratio < self.high)
            error = torch.round(ratio.clamp(self.low, self.high)) - torch.where(inside, ratio, 0.0)

        def function() -> Tensor:
            step = start + self.factor * (self.step - start)
            return torch.where(inside, self.weight, 0.0) + error * step

        return function

    def constrain(self) -> None:
        """A step stays positive."""
        self.step.clamp_(min=1e-8)

    def stored(self) -> Stored:
        """[clip(v/s)] and s."""
        whole = torch.round((self.weight.detach() / self.step.detach()).clamp(self.low, self.high))
        return Stored(whole.to(torch.int32), self.step.detach())

    def project(self) -> Tensor:
        """The quantized weight."""
        return weight_of(self.stored(), self.weight.dtype)


@dataclasses.dataclass(frozen=True)
class LearnedStep(WeightLift):
    """min over v, s of f(s [clip(v/s, −2^(k−1), 2^(k−1) − 1)]), k ``bits``, one step s per tensor.

    LSQ (Esser et al. 2020), whose start s = 2 E|w| / √(2^(k−1) − 1) and gradient scale are used. A baseline.
    """

    where: str = "*weight"
    bits: int = 4

    def __post_init__(self) -> None:
        if type(self.bits) is not int or not 2 <= self.bits <= 16:
            raise TorchliftError(
                f"bits is a whole number from 2 to 16 (one bit has no step), got {self.bits!r}."
            )

    @property
    def preserving(self) -> bool:
        """No: training starts on the grid."""
        return False

    def nodes(self, weights: Mapping[str, Tensor]) -> Mapping[str, Node]:
        """A quantized weight each."""
        return {name: Stepped(weight, self.bits) for name, weight in weights.items()}
