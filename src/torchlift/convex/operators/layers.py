"""The linear parts of layers: matrices, convolutions, average pooling, channel scales."""

import dataclasses
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.grad import conv2d_input

from torchlift.convex.operators.base import Operator


@dataclasses.dataclass(frozen=True, eq=False)
class Dense(Operator):
    """x ↦ x Wᵀ, W out × in."""

    weight: Tensor

    def A(self, x: Tensor) -> Tensor:
        """X Wᵀ."""
        return x @ self.weight.mT

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Y W."""
        return y @ self.weight

    def norm(self, like: Tensor) -> float:
        """The largest singular value, exactly."""
        w = self.weight
        gram = w @ w.mT if len(w) < w.shape[1] else w.mT @ w
        return float(torch.linalg.eigvalsh(gram)[-1].clamp(min=0).sqrt())


@dataclasses.dataclass(frozen=True, eq=False)
class Convolution(Operator):
    """x ↦ W ∗ x with zero padding, as ``F.conv2d``; ``shape`` is that of one input (channels first)."""

    weight: Tensor
    shape: tuple[int, int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    @property
    def _geometry(self) -> dict[str, Any]:
        return {
            "stride": self.stride,
            "padding": self.padding,
            "dilation": self.dilation,
            "groups": self.groups,
        }

    def A(self, x: Tensor) -> Tensor:
        """W ∗ x."""
        return F.conv2d(x, self.weight, **self._geometry)

    def A_adjoint(self, y: Tensor) -> Tensor:
        """The transposed convolution, to the size of the input."""
        return conv2d_input((len(y), *self.shape), self.weight, y, **self._geometry)


@dataclasses.dataclass(frozen=True)
class AveragePool(Operator):
    """Means over windows; every window has the same weight, so only padding that counts is allowed."""

    shape: tuple[int, int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int] = (0, 0)

    def _convolution(self, like: Tensor) -> Convolution:
        channels = self.shape[0]
        weight = like.new_full((channels, 1, *self.kernel), 1 / (self.kernel[0] * self.kernel[1]))
        return Convolution(weight, self.shape, self.stride, self.padding, groups=channels)

    def A(self, x: Tensor) -> Tensor:
        """The means."""
        return self._convolution(x).A(x)

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Every mean spread over its window."""
        return self._convolution(y).A_adjoint(y)


@dataclasses.dataclass(frozen=True, eq=False)
class Scale(Operator):
    """x ↦ s·x, one factor per entry or per channel (broadcast from the left: s has the shape of a sample)."""

    factor: Tensor

    def A(self, x: Tensor) -> Tensor:
        """S x."""
        return self.factor * x

    def A_adjoint(self, y: Tensor) -> Tensor:
        """S y."""
        return self.factor * y

    def norm(self, like: Tensor) -> float:
        """max |s|."""
        return float(self.factor.abs().max())
