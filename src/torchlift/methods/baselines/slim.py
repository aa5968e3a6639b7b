"""Network slimming: scaling factors under an ℓ₁ penalty."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from torchlift.core import Fit, Node, Problem, WeightLift, store
from torchlift.errors import TorchliftError
from torchlift.methods.sparsity import gates


class ScaledWeight(Node):
    """w = v ⊙ g; penalty λ ‖g‖₁."""

    options: Mapping[str, Mapping[str, Any]] = {"factor": {"weight_decay": 0.0}}

    def __init__(self, weight: Tensor, grain: tuple[int, ...], strength: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.clone())
        self.factor = nn.Parameter(weight.new_ones(gates.tiles(weight.shape, grain)))
        self.strength = strength

    def forward(self) -> Tensor:
        """The scaled weight."""
        return self.weight * self.factor

    def penalty(self) -> Tensor | float:
        """λ ‖g‖₁."""
        return self.strength * self.factor.abs().sum() if self.strength else 0.0

    def project(self) -> Tensor:
        """The scaled weight, for good."""
        return self()


@dataclasses.dataclass(frozen=True)
class Slim(WeightLift):
    """min over v, g of f(v ⊙ g) + λ ‖g‖₁; then the weights (or channels) with the least |g| go.

    Network slimming (Liu et al. 2017), per weight as in the thesis (§4.4.1, ℓ₁ alone) or per channel.
    A baseline.
    """

    where: str = "*weight"
    sparsity: float = 0.9
    granularity: Literal["weight", "channel"] = "weight"
    strength: float = 1e-5
    prunes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.sparsity < 1:
            raise TorchliftError(f"sparsity must lie in [0, 1), got {self.sparsity}.")

    @property
    def reversible(self) -> bool:
        """No: the projection prunes."""
        return False

    def nodes(self, weights: Mapping[str, Tensor]) -> Mapping[str, Node]:
        """Factors of one for each weight."""
        return {name: ScaledWeight(w, self.grain(w), self.strength) for name, w in weights.items()}

    def grain(self, weight: Tensor) -> tuple[int, ...]:
        """How many entries share a factor."""
        return (1,) * weight.ndim if self.granularity == "weight" else (1, *weight.shape[1:])

    def project(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """Drop the least factors, over all layers, until the target fraction of weights is zero."""
        problem = self.own(problem)
        scaled = [node for node in problem.nodes.values() if isinstance(node, ScaledWeight)]
        scores = torch.cat([node.factor.detach().abs().flatten() for node in scaled])
        worth = torch.cat(
            [torch.full_like(n.factor, n.weight.numel() / n.factor.numel()).flatten() for n in scaled]
        )
        dropped = gates.lowest_scores(
            scores, torch.zeros_like(scores), worth, self.sparsity * float(worth.sum())
        )
        plain = super().project(problem, fit)
        for (name, slots), mask in zip(
            problem.slots.items(), dropped.split([node.factor.numel() for node in scaled]), strict=True
        ):
            node = problem.nodes[name]
            assert isinstance(node, ScaledWeight)
            kept = ~mask.view_as(node.factor) & (plain.get_parameter(slots[0]) != 0)
            store(plain, slots[0], kept=kept)
        return plain
