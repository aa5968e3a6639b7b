"""The ℓ₀ penalty made differentiable by hard concrete gates."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from torchlift.core import Node, WeightLift

LOW, HIGH, TEMPERATURE = -0.1, 1.1, 2 / 3


def stretched(chance: Tensor) -> Tensor:
    """min(1, max(0, s̄)) with s̄ = γ + (ζ − γ) s: some of the mass falls on exactly 0 and 1."""
    return (LOW + (HIGH - LOW) * chance).clamp(0, 1)


def concrete_sample(logit: Tensor) -> Tensor:
    """A hard concrete draw: s = σ((log u − log(1 − u) + log α) / β), stretched."""
    u = torch.rand_like(logit).clamp(1e-6, 1 - 1e-6)
    return stretched(torch.sigmoid((u.log() - (1 - u).log() + logit) / TEMPERATURE))


def likely(logit: Tensor) -> Tensor:
    """P(gate ≠ 0) = σ(log α − β log(−γ/ζ))."""
    return torch.sigmoid(logit - TEMPERATURE * math.log(-LOW / HIGH))


class Concrete(Node):
    """w = v ⊙ z with z hard concrete; penalty λ Σ P(z ≠ 0)."""

    options: Mapping[str, Mapping[str, Any]] = {"logit": {"weight_decay": 0.0}}

    def __init__(self, weight: Tensor, keep: float, strength: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.clone())
        self.logit = nn.Parameter(torch.full_like(weight, math.log(keep / (1 - keep))))
        self.strength = strength

    def forward(self) -> Tensor:
        """A draw while training, the middle of the distribution otherwise."""
        return self.weight * (
            concrete_sample(self.logit) if self.training else stretched(torch.sigmoid(self.logit))
        )

    def penalty(self) -> Tensor | float:
        """λ Σ P(z ≠ 0): the expected number of weights that are left."""
        return self.strength * likely(self.logit).sum() if self.strength else 0.0

    def project(self) -> Tensor:
        """The middle of the distribution: exact zeros where it is at most 0."""
        gate = stretched(torch.sigmoid(self.logit))
        return torch.where(gate > 0, gate * self.weight, 0.0)


@dataclasses.dataclass(frozen=True)
class HardConcrete(WeightLift):
    """min over v, α of E f(v ⊙ z) + λ Σ P(z ≠ 0), z hard concrete with log α.

    Louizos, Welling, Kingma (2018); constants as there: β = 2/3, γ = −0.1, ζ = 1.1.
    ``keep`` is where a gate's chance starts. A baseline.
    """

    where: str = "*weight"
    strength: float = 1e-7
    keep: float = 0.9
    prunes: ClassVar[bool] = True

    @property
    def preserving(self) -> bool:
        """No: gates are drawn."""
        return False

    def nodes(self, weights: Mapping[str, Tensor]) -> Mapping[str, Node]:
        """A gate per weight."""
        return {name: Concrete(w, self.keep, self.strength) for name, w in weights.items()}
