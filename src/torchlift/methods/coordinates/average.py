"""Weights beside which their mean runs: the mean is what stays."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from torchlift.core import Node, Problem, WeightLift
from torchlift.core.weights import liftable
from torchlift.errors import TorchliftError


class Followed(Node):
    """w, and w̄ ← w̄ + (η + 1) / (k + η) · (w − w̄) after its k-th step."""

    unliftable: ClassVar[tuple[str, ...]] = ("weight",)  # the mean is of this weight alone

    mean: Tensor
    steps: Tensor

    def __init__(self, weight: Tensor, eta: float) -> None:
        super().__init__()
        self.eta = eta
        self.weight = nn.Parameter(weight.clone())
        self.register_buffer("mean", weight.clone())
        self.register_buffer("steps", torch.zeros((), dtype=torch.float64, device=weight.device))

    def forward(self) -> Tensor:
        """The weight that is trained."""
        return self.weight

    def constrain(self) -> None:
        """The mean follows."""
        steps, mean, weight = self.steps, self.mean, self.weight
        steps.add_(1)
        if mean.device.type == "cpu":  # a number: elsewhere it would make the step wait
            mean.lerp_(weight, (self.eta + 1) / (steps.item() + self.eta))
        else:
            mean.lerp_(weight, ((self.eta + 1) / (steps + self.eta)).to(mean.dtype))

    def project(self) -> Tensor:
        """The mean."""
        return self.mean.clone()


@dataclasses.dataclass(frozen=True)
class Average(WeightLift):
    """w̄_k = Σ_j c_j w_j with c_j ∝ (j + η − 1)! / (j − 1)! ~ j^η: the mean over the last part of the steps.

    Shamir and Zhang, 2013, polynomial-decay averaging. The mean's age is 1/(η + 2) of the run, whatever its
    length: ``eta=0`` is the mean of all steps, 8 that of about the last fifth. Training itself does not
    change. A model whose normalization keeps running statistics is an error: they would be those of other
    weights.
    """

    where: str = "*"
    eta: float = 8.0

    def __post_init__(self) -> None:
        if not 0 <= self.eta < float("inf"):
            raise TorchliftError(f"Average's eta is 0 or more, got {self.eta}.")

    def eligible(self, problem: Problem) -> dict[str, Tensor]:
        """All trainable floating-point parameters, biases too, of a problem without running statistics."""
        for name, module in problem.named_modules():
            if isinstance(getattr(module, "running_mean", None), Tensor):
                raise TorchliftError(
                    f"the running statistics of {problem.label(name)!r} would not be those of the mean: "
                    "use a normalization without them, or Average after it is folded in."
                )
        return {name: p.detach() for name, p in liftable(problem).items()}

    def nodes(self, weights: Mapping[str, Tensor]) -> Mapping[str, Node]:
        """One node each."""
        return {name: Followed(weight, self.eta) for name, weight in weights.items()}
