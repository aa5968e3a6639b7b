"""A grid that follows the weights on it: its scale with their size, its zeros with the smallest."""

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from torchlift.core import Node
from torchlift.methods.precision.grids import half_step, rounded, significant


class OnMovingGrid(Node):
    """w = c Q(v/c, p), and 0 for the k smallest |v|; c = c₀ ρ(v) / ρ(v₀), ρ the root mean square; ∂w/∂v = 1.

    As many weights are zero as at first, so that a file keeps its size; which ones is decided anew at every
    step. The scale keeps its 8 significant bits, so that products with the grid are exact. Weights that were
    cut before are zeros of v itself: they are among the k, and do not count in ρ.
    """

    settled: ClassVar[tuple[str, ...]] = ("weight",)
    unit: Tensor
    first: Tensor
    alive: Tensor

    def __init__(self, weight: Tensor, bits: Tensor, zeros: int, scale: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.clone())
        self.register_buffer("unit", half_step(bits).to(weight.dtype))
        self.zeros = zeros
        self.register_buffer("alive", weight.count_nonzero().clamp(min=1).to(weight.dtype))
        self.register_buffer("first", weight.new_tensor(scale) / self.size(weight))

    def size(self, v: Tensor) -> Tensor:
        """ρ(v), over the entries that were not cut before; 1 for a weight of zeros."""
        found = (v.square().sum() / self.alive).sqrt()
        return torch.where(found > 0, found, 1.0)

    def scale(self) -> Tensor:
        """c, now."""
        return rounded(self.first * self.size(self.weight.detach()), significant(self.weight.dtype))

    def project(self) -> Tensor:
        """The value on the grid."""
        v, scale = self.weight.detach(), self.scale()
        half = self.unit * scale
        value = (2 * torch.floor(v * (0.5 / half)) + 1) * half
        value = torch.minimum(torch.maximum(value, half - 2 * scale), 2 * scale - half)
        return torch.where(v.abs() > self.threshold(v), value, 0.0)  # 0, never −0

    def threshold(self, v: Tensor) -> Tensor:
        """The k-th smallest |v|; below all of them without zeros."""
        return v.abs().flatten().kthvalue(self.zeros).values if self.zeros else v.new_tensor(-1.0)

    def forward(self) -> Tensor:
        """The value on the grid, with the gradient of v."""
        return self.project() + (self.weight - self.weight.detach())

    def surrogate(self) -> Callable[[], Tensor]:
        """w₀ + v − v₀: the identity from here."""
        start = self.project() - self.weight.detach()
        return lambda: self.weight + start

    def bits(self) -> Tensor:
        """The bits of every entry: p, and 0."""
        return torch.where(self.project() != 0, 1 - torch.log2(self.unit).expand_as(self.weight), 0.0)
