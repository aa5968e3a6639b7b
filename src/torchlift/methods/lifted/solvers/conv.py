"""The geometry of convolutions: patches for the W-step, adjoints."""

import dataclasses
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.grad import conv2d_input, conv2d_weight

IntPair = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class ConvolutionGeometry:
    """The geometry of a Conv2d: everything but its weights."""

    kernel: IntPair
    stride: IntPair = (1, 1)
    padding: IntPair = (0, 0)
    dilation: IntPair = (1, 1)

    def patches(self, x: Tensor) -> Tensor:
        """im2col: one row per sample and position, one column per channel and kernel entry."""
        columns = functional.unfold(x, self.kernel, self.dilation, self.padding, self.stride)
        return columns.mT.reshape(-1, columns.shape[1])

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        """Weight * x."""
        return functional.conv2d(x, weight, None, self.stride, self.padding, self.dilation)

    def adjoint_input(self, shape: torch.Size, weight: Tensor, out: Tensor) -> Tensor:
        """The adjoint in x of ``forward``."""
        pairs: Any = (
            self.stride,
            self.padding,
            self.dilation,
        )  # torch's annotation knows only single numbers
        return conv2d_input(shape, weight, out, *pairs)

    def adjoint_weight(self, x: Tensor, shape: torch.Size, out: Tensor) -> Tensor:
        """The adjoint in the weights of ``forward``."""
        pairs: Any = (self.stride, self.padding, self.dilation)
        return conv2d_weight(x, shape, out, *pairs)


def image_rows(v: Tensor) -> Tensor:
    """(m, c, h, w) to one row of channels per sample and position."""
    return v.movedim(1, -1).reshape(-1, v.shape[1])
