"""Pruned stays pruned: holding exact zeros while the rest trains on."""

import copy
import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from torchlift.core import (
    Fit,
    Node,
    Problem,
    Reparametrized,
    WeightLift,
    liftable,
    matches,
    original_parameters,
)


class Held(Node):
    """w = m ⊙ v with m = 1{w₀ ≠ 0}: what was zero has no gradient and no way back."""

    mask: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.clone())
        self.register_buffer("mask", weight != 0)

    def forward(self) -> Tensor:
        """The weight with its zeros."""
        return self.weight * self.mask

    def project(self) -> Tensor:
        """The weight with exact zeros, whatever an optimizer did behind the mask."""
        return torch.where(self.mask, self.weight, 0.0)


@dataclasses.dataclass(frozen=True)
class KeepZeros(WeightLift):
    """min f(m ⊙ v) with m = 1{w ≠ 0}: the zeros of pruned weights survive any optimizer.

    Momentum and weight decay bring zeros back once a mask is removed; here the mask is part of the problem.
    Held are weights of the user's model with some, but not only, zeros: a layer initialized at zero is not
    taken for pruned. A problem without such weights is handed on as it is. ``vectors=True`` holds biases and
    norms too, which keeps pruned channels removable.
    """

    where: str = "*"
    vectors: bool = False
    prunes: ClassVar[bool] = True

    def eligible(self, problem: Problem) -> dict[str, Tensor]:
        """Trainable matrices and kernels of the user's model that are partly zero (and vectors, if asked)."""
        original = set(original_parameters(problem))
        known = super().eligible(problem)
        if self.vectors:
            known |= {n: p.detach() for n, p in liftable(problem).items() if p.ndim == 1}
        return {n: w for n, w in known.items() if n in original and bool((w == 0).any() and (w != 0).any())}

    def nodes(self, weights: Mapping[str, Tensor]) -> Mapping[str, Node]:
        """One held weight each."""
        return {name: Held(weight) for name, weight in weights.items()}

    def lift(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """A copy of the problem whose zeros cannot move."""
        if not any(matches(name, self.where) for name in self.eligible(problem)):
            return copy.deepcopy(problem)
        return super().lift(problem, fit)

    def project(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """The plain problem with its zeros; a copy where there was nothing to hold."""
        if isinstance(problem, Reparametrized) and problem.way_back == self:
            return super().project(problem, fit)
        return copy.deepcopy(problem)
