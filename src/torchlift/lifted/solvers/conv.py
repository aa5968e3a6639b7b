"""Convolutions: the W-step by an im2col Gram matrix or by conjugate gradients."""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.grad import conv2d_input, conv2d_weight

from torchlift.lifted.solvers.ridge import Ridge

Pair = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Convolution:
    """The geometry of a Conv2d: everything but its weights."""

    kernel: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)

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


def conjugate_gradient(
    apply: Callable[[Tensor], Tensor], right: Tensor, *, tolerance: float = 1e-12, steps: int = 1000
) -> Tensor:
    """x with Mx = right for a symmetric positive definite M given as a function."""
    x = torch.zeros_like(right)
    residual = right.clone()
    direction = residual.clone()
    energy = residual.square().sum()
    stop = float(energy) * tolerance**2
    for _ in range(steps):
        if float(energy) <= stop:
            break
        image = apply(direction)
        rate = energy / (direction * image).sum()
        x = x + rate * direction
        residual = residual - rate * image
        following = residual.square().sum()
        direction = residual + (following / energy) * direction
        energy = following
    return x


def conv_ridge(
    x: Tensor, u: Tensor, geometry: Convolution, lam: float, rho: float, *, method: str = "gram"
) -> tuple[Tensor, Tensor]:
    """argmin over W, b of λ‖W * x + b − u‖² + ρ‖W‖²; W is out × in × kernel, the bias is free."""
    shape = torch.Size((u.shape[1], x.shape[1], *geometry.kernel))
    if method == "gram":
        weight, bias = Ridge(geometry.patches(x), rho / lam).solve(image_rows(u))
        return weight.reshape(shape), bias
    if method != "cg":
        raise ValueError(f"conv_ridge: no method {method!r}; known: gram, cg")

    def centre(v: Tensor) -> Tensor:
        return v - v.mean((0, 2, 3), keepdim=True)

    def normal(weight: Tensor) -> Tensor:
        return geometry.adjoint_weight(x, shape, centre(geometry.forward(x, weight))) + rho / lam * weight

    weight = conjugate_gradient(normal, geometry.adjoint_weight(x, shape, centre(u)))
    return weight, (u - geometry.forward(x, weight)).mean((0, 2, 3))
