"""Soft threshold reparameterization: every layer learns below which size its weights vanish."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from torchlift.core import Node, WeightLift


def shrunken(weight: Tensor, s: Tensor) -> Tensor:
    """sign(v) · max(0, |v| − σ(s))."""
    return weight.sign() * (weight.abs() - torch.sigmoid(s)).relu()


class Thresholded(Node):
    """w = sign(v) · max(0, |v| − σ(s)) with one s per layer."""

    options: Mapping[str, Mapping[str, Any]] = {"s": {}}

    def __init__(self, weight: Tensor, s_init: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.clone())
        self.s = nn.Parameter(weight.new_tensor(s_init))

    def forward(self) -> Tensor:
        """The shrunken weight: its zeros are exact at any time."""
        return shrunken(self.weight, self.s)

    def project(self) -> Tensor:
        """The shrunken weight, for good."""
        return self()


@dataclasses.dataclass(frozen=True)
class SoftThreshold(WeightLift):
    """min over v, s of f(sign(v) max(0, |v| − σ(s))): STR, Kusupati et al. (2020). A baseline.

    Weight decay, on s too, is what drives the sparsity: s falls to 0 under it, and the threshold rises to ½.
    """

    where: str = "*weight"
    s_init: float = -10.0
    prunes: ClassVar[bool] = True

    @property
    def preserving(self) -> bool:
        """Only in the limit s → −∞."""
        return False

    def nodes(self, weights: Mapping[str, Tensor]) -> Mapping[str, Node]:
        """A threshold per layer."""
        return {name: Thresholded(w, self.s_init) for name, w in weights.items()}
