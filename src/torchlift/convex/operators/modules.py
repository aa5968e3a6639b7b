"""Affine modules as operators, v = A x + b: the common ones by formula, all others through autograd."""

import dataclasses
import functools
from collections.abc import Callable

import torch
from torch import Tensor, nn

from torchlift.convex.operators.base import Identity, Operator, Reshape, compose
from torchlift.convex.operators.layers import AveragePool, Convolution, Dense, Scale
from torchlift.convex.pullback import pullback
from torchlift.flow import graph
from torchlift.flow.graph import AFFINE, EVALUATED

SampleShape = tuple[int, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Affine:
    """x ↦ A x + b for samples of one shape; b is a sample of the outputs."""

    linear: Operator
    offset: Tensor
    shape: SampleShape

    def __call__(self, x: Tensor) -> Tensor:
        """A x + b."""
        return self.linear.A(x) + self.offset

    @functools.cached_property
    def norm(self) -> float:
        """‖A‖₂, worked out once."""
        return self.linear.norm(self.offset.new_zeros(1, *self.shape))

    def after(self, first: "Affine") -> "Affine":
        """This map applied to the values of ``first``."""
        offset = self.linear.A(first.offset[None])[0] + self.offset
        return Affine(compose(first.linear, self.linear), offset, first.shape)


@dataclasses.dataclass(frozen=True, eq=False)
class Mapped(Operator):
    """x ↦ f(x) − f(0) for any affine f, its adjoint by autograd."""

    function: Callable[[Tensor], Tensor]
    shape: SampleShape
    like: Tensor

    def affine(self) -> Affine:
        """The whole of f."""
        with torch.no_grad():
            return Affine(self, self.function(self._zeros(1))[0].detach(), self.shape)

    def _zeros(self, samples: int) -> Tensor:
        return self.like.new_zeros(samples, *self.shape)

    def A(self, x: Tensor) -> Tensor:
        """f(x) − f(0)."""
        return self.function(x) - self.function(self._zeros(1))

    def A_adjoint(self, y: Tensor) -> Tensor:
        """The pullback of y."""
        return pullback(self.A, self._zeros(len(y)))[1](y)


def affine(module: nn.Module, shape: SampleShape, like: Tensor) -> Affine | None:
    """The module as an affine map of samples of ``shape``, or None if it is none that is known."""
    linear = linear_part(module, shape, like)
    if linear is None:
        return None
    with torch.no_grad():
        offset = module(like.new_zeros(1, *shape))[0].detach()
    return Affine(linear, offset, shape)


def linear_part(module: nn.Module, shape: SampleShape, like: Tensor) -> Operator | None:
    """A of v = A x + b."""
    match module:
        case nn.Identity() | nn.Dropout():
            return None if module.training and isinstance(module, nn.Dropout) else Identity()
        case nn.Flatten() if module.start_dim == 1 and module.end_dim == -1:
            return Reshape(shape, (_entries(shape),))
        case nn.Unflatten() if module.dim == 1 and len(shape) == 1:
            return Reshape(shape, tuple(int(size) for size in module.unflattened_size))
        case nn.Linear():
            return Dense(module.weight.detach())
        case nn.Conv2d() if module.padding_mode == "zeros" and len(shape) == 3:
            return _convolution(module, shape) or Mapped(module, shape, like)
        case nn.AvgPool2d() if not module.ceil_mode and module.divisor_override is None and len(shape) == 3:
            return _pool(module, shape) or Mapped(module, shape, like)
        case nn.AdaptiveAvgPool2d() if len(shape) == 3:
            return _adaptive(module, shape) or Mapped(module, shape, like)
        case nn.BatchNorm1d() | nn.BatchNorm2d() if not module.training and module.running_var is not None:
            return _norm(module, shape)
        case _ if isinstance(module, (*AFFINE, graph.ReshapeSamples, graph.Call)):
            return Mapped(module, shape, like)
        case _ if isinstance(module, EVALUATED) and not module.training:
            return Mapped(module, shape, like)
        case _:
            return None


def _entries(shape: SampleShape) -> int:
    return torch.Size(shape).numel()


def _convolution(module: nn.Conv2d, shape: SampleShape) -> Operator | None:
    if isinstance(module.padding, str):
        return None
    return Convolution(
        module.weight.detach(),
        (shape[0], shape[1], shape[2]),
        pair(module.stride),
        pair(module.padding),
        pair(module.dilation),
        module.groups,
    )


def _pool(module: nn.AvgPool2d, shape: SampleShape) -> Operator | None:
    padding = pair(module.padding)
    if padding != (0, 0) and not module.count_include_pad:
        return None
    size = (shape[0], shape[1], shape[2])
    return AveragePool(size, pair(module.kernel_size), pair(module.stride), padding)


def _adaptive(module: nn.AdaptiveAvgPool2d, shape: SampleShape) -> Operator | None:
    wanted = module.output_size
    rows, columns = wanted if isinstance(wanted, tuple) else (wanted, wanted)
    rows, columns = rows or shape[1], columns or shape[2]
    if shape[1] % rows or shape[2] % columns:
        return None  # windows of unequal size
    window = (shape[1] // rows, shape[2] // columns)
    return AveragePool((shape[0], shape[1], shape[2]), window, window)


def _norm(module: nn.BatchNorm1d | nn.BatchNorm2d, shape: SampleShape) -> Operator:
    assert module.running_var is not None
    scale = (module.running_var + module.eps).rsqrt()
    scale = scale * module.weight if module.affine else scale
    return Scale(scale.detach().reshape(-1, *([1] * (len(shape) - 1))))


def pair(value: int | tuple[int, ...]) -> tuple[int, int]:
    """Height and width, of one number too."""
    return (value, value) if isinstance(value, int) else (value[0], value[1])
