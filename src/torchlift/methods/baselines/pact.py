"""Clipped activations on a uniform grid (PACT), a rival of learned precision of activations."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from torchlift.core import Node
from torchlift.errors import TorchliftError
from torchlift.methods.precision.activation_precision import GridActivation, Ranged, RangedActivations


class Clipped(Node):
    """u = α/(2^k − 1) [clip(x, 0, α)(2^k − 1)/α], ∂u/∂α = 1{x ≥ α}; penalty λ α²."""

    options: Mapping[str, Mapping[str, Any]] = {"inner.ranged.alpha": {}}

    def __init__(self, module: nn.Module, lift: "Pact") -> None:
        super().__init__()
        self.inner = GridActivation(Ranged(module, lift.clip), torch.tensor(lift.bits))
        self.strength = lift.strength

    def forward(self, x: Tensor) -> Tensor:
        """The activation on its grid."""
        return self.inner(x)

    def penalty(self) -> Tensor | float:
        """λ α² of a learned clip."""
        alpha = self.inner.ranged._parameters.get("alpha")
        return 0.0 if alpha is None else self.strength * alpha.square()

    def project(self) -> nn.Module:
        """The quantized activation as a plain module."""
        return self.inner


@dataclasses.dataclass(frozen=True)
class Pact(RangedActivations):
    """min over w, α of f with u = Q_k(clip(x, 0, α)) for every ReLU, k ``bits``, plus λ Σ α².

    Choi et al. (2018). ReLU6, sigmoid and tanh keep the ranges they have. A baseline.
    """

    where: str = "*"
    bits: int = 4
    clip: float = 6.0
    strength: float = 2e-4
    node: ClassVar[Callable[[nn.Module, Any], Node]] = Clipped

    def __post_init__(self) -> None:
        if type(self.bits) is not int or not 1 <= self.bits <= 16:
            raise TorchliftError(f"bits is a whole number from 1 to 16, got {self.bits!r}.")
        if not self.clip > 0:
            raise TorchliftError(f"clip is where a ReLU's range starts to end, above 0; got {self.clip}.")
