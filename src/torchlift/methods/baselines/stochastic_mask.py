"""Stochastic masks: gates drawn again at every step."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from torchlift.core import Node, WeightLift


class BernoulliGate(Node):
    """w = v ⊙ m, m ~ Bernoulli(σ(s)), the gradient of m taken as that of σ(s); penalty λ ‖σ(s)‖₁."""

    # the estimator's gradients are small: the source trains s with a rate 200 times that of the weights
    options: Mapping[str, Mapping[str, Any]] = {"logit": {"weight_decay": 0.0, "lr_factor": 200.0}}

    def __init__(self, weight: Tensor, s_init: float, strength: float, frozen: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.clone(), requires_grad=not frozen)
        self.logit = nn.Parameter(torch.full_like(weight, s_init))
        self.strength = strength

    def forward(self) -> Tensor:
        """A draw while training; the more likely value of each gate otherwise."""
        chance = torch.sigmoid(self.logit)
        mask = torch.bernoulli(chance.detach()) if self.training else (chance.detach() >= 0.5).to(chance)
        return self.weight * (mask + chance - chance.detach())

    def surrogate(self) -> Callable[[], Tensor]:
        """v ⊙ (m + σ(s) − σ(s₀)) at the draw m that comes next: straight through the draw."""
        chance = torch.sigmoid(self.logit.detach())
        with torch.random.fork_rng(devices=[]):
            mask = torch.bernoulli(chance) if self.training else (chance >= 0.5).to(chance)
        return lambda: self.weight * (mask + torch.sigmoid(self.logit) - chance)

    def penalty(self) -> Tensor | float:
        """λ ‖σ(s)‖₁."""
        return self.strength * torch.sigmoid(self.logit).sum() if self.strength else 0.0

    def project(self) -> Tensor:
        """One last draw (Algorithm 4, line 10)."""
        return torch.where(torch.bernoulli(torch.sigmoid(self.logit)) > 0, self.weight, 0.0)


@dataclasses.dataclass(frozen=True)
class StochasticMask(WeightLift):
    """min over v, s of E f(v ⊙ m) + λ ‖σ(s)‖₁ with m ~ Bernoulli(σ(s)), by the straight-through estimator.

    One round of iterative stochastic sparsification (Savarese, thesis, Algorithm 4; after Zhou et al. 2019).
    With ``frozen=True`` the supermask of Zhou et al. Not function-preserving: a gate is open by chance.
    """

    where: str = "*weight"
    s_init: float = 1.0
    strength: float = 1e-8
    frozen: bool = False
    prunes: ClassVar[bool] = True

    @property
    def preserving(self) -> bool:
        """No: training starts with gates drawn at random."""
        return False

    def nodes(self, weights: Mapping[str, Tensor]) -> Mapping[str, Node]:
        """A gate per weight."""
        return {
            name: BernoulliGate(w, self.s_init, self.strength, self.frozen) for name, w in weights.items()
        }
