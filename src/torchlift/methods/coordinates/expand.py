"""Linear over-parameterization of weights: more coordinates, the same functions, merged exactly."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from torchlift.core import Node, WeightLift
from torchlift.core.merge import weight_after
from torchlift.errors import TorchliftError

Side = Literal["out", "in", "both"]


def plus_identity(down: Tensor, up: Tensor, weight: Tensor, axis: int) -> Tensor:
    """(I + B A) w along one axis, without forming I + B A."""
    return weight + weight_after(down, weight_after(up, weight, axis), axis)


class Expanded(Node):
    """w = (I + B A) v on the outputs, v (I + A'B') on the inputs, or both; B = B' = 0 at first."""

    options: Mapping[str, Mapping[str, Any]] = {"up": {}, "down": {}}

    def __init__(self, weight: Tensor, rank: float, side: Side) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.clone())
        axes = {"out": (0,), "in": (1,), "both": (0, 1)}[side]
        self.up, self.down = nn.ParameterDict(), nn.ParameterDict()
        for axis in axes:
            size = weight.shape[axis]
            width = max(1, round(rank * size))
            self.up[str(axis)] = nn.Parameter(torch.randn_like(weight.new_empty(width, size)) / size**0.5)
            self.down[str(axis)] = nn.Parameter(weight.new_zeros(size, width))

    def forward(self) -> Tensor:
        """The merged weight."""
        weight = self.weight
        for axis, up in self.up.items():
            weight = plus_identity(self.down[axis], up, weight, int(axis))
        return weight

    def project(self) -> Tensor:
        """The merged weight, for good."""
        return self()


@dataclasses.dataclass(frozen=True)
class Expand(WeightLift):
    """W = (I + B A) V: the same functions in more coordinates, merged before every use.

    The linear lifter z + B A z of the layer's output, written in weight space: the network runs at its own
    size, so that a step costs next to nothing more, and projection is exact. ``rank`` is the width of A as
    a fraction of the axis it acts on; ``side`` the axes: a layer's outputs, inputs, or both.
    """

    where: str = "*weight"
    rank: float = 1.0
    side: Side = "out"

    exact: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.rank > 0 or self.side not in ("out", "in", "both"):
            raise TorchliftError(f"{self!r}: rank must be positive and side one of 'out', 'in', 'both'.")

    def nodes(self, weights: Mapping[str, Tensor]) -> Mapping[str, Node]:
        """One node per weight."""
        return {name: Expanded(weight, self.rank, self.side) for name, weight in weights.items()}
