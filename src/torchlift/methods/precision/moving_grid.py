"""A grid that follows the weights on it: its scale with their size, its zeros with the smallest."""

import abc
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from torchlift.core import Node, Stored
from torchlift.core.stored import from_levels
from torchlift.methods.precision.grids import odd_levels, units_of


class StraightThrough(Node, abc.ABC):
    """A weight on a grid, ``project()``, with the gradient of the coordinate v under it: ∂w/∂v = 1."""

    unliftable: ClassVar[tuple[str, ...]] = ("weight",)
    weight: nn.Parameter

    @abc.abstractmethod
    def project(self) -> Tensor:
        """The value on the grid."""

    def forward(self) -> Tensor:
        """The value on the grid, with the gradient of v."""
        return self.project() + (self.weight - self.weight.detach())

    def surrogate(self) -> Callable[[], Tensor]:
        """w₀ + v − v₀: the identity from here."""
        start = self.project() - self.weight.detach()
        return lambda: self.weight + start


class OnMovingGrid(StraightThrough):
    """w = c Q(v/c, p), and 0 for the k smallest |v|; c = c₀ ρ(v) / ρ(v₀), ρ the root mean square; ∂w/∂v = 1.

    As many weights are zero as at first, so that a file keeps its size; which ones is decided again at every
    step. Weights that were cut before are zeros of v itself: they are among the k, and do not count in ρ.
    """

    unit: Tensor
    last: Tensor
    first: Tensor
    alive: Tensor

    def __init__(self, weight: Tensor, bits: Tensor, zeros: int, scale: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.clone())
        unit, last, self.most = units_of(bits)
        self.register_buffer("unit", unit.to(weight.dtype))
        self.register_buffer("last", last.to(weight.dtype))
        self.zeros = zeros
        self.register_buffer("alive", weight.count_nonzero().clamp(min=1).to(weight.dtype))
        self.register_buffer("first", weight.new_tensor(scale) / self.size(weight))

    def size(self, v: Tensor) -> Tensor:
        """ρ(v), over the entries that were not cut before; 1 for a weight of zeros."""
        size = (v.square().sum() / self.alive).sqrt()
        return torch.where(size > 0, size, 1.0)

    def scale(self) -> Tensor:
        """c, now."""
        return self.first * self.size(self.weight.detach())

    def step(self) -> Tensor:
        """2^(1−P) c, now."""
        return self.scale() * 2.0 ** (1 - self.most)

    def levels(self) -> Tensor:
        """Whole numbers, 0 for the smallest."""
        v = self.weight.detach()
        whole = odd_levels(v, self.unit, self.last, self.step())
        return torch.where(v.abs() > self.threshold(v), whole, 0.0)

    def threshold(self, v: Tensor) -> Tensor:
        """The k-th smallest |v|; below all of them without zeros."""
        return v.abs().flatten().kthvalue(self.zeros).values if self.zeros else v.new_tensor(-1.0)

    def stored(self) -> Stored:
        """Levels and step, now."""
        return Stored(self.levels().to(torch.int32), self.step())

    def project(self) -> Tensor:
        """The value on the grid."""
        return from_levels(self.levels(), self.step(), self.weight.dtype)

    def bits(self) -> Tensor:
        """The bits of every entry: p, and 0."""
        whole = torch.log2(self.last / self.unit + 1).expand_as(self.weight)
        return torch.where(self.levels() != 0, whole, 0.0).round()
