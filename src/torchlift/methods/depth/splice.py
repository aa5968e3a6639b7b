"""Taking layers out of a model: the arithmetic of a merge, and the change of the module tree."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from torchlift.flow.affine import Moments, by_row, composed_weight, through, weight_and_bias
from torchlift.methods.coordinates.normalize import norm_as_affine
from torchlift.methods.depth.spots import CONVOLUTIONS, Spot, WeightLayer


class StraightLine(nn.Module):
    """z ↦ λ z + μ, neuron by neuron: an activation as the data see it."""

    slope: Tensor
    offset: Tensor

    def __init__(self, slope: Tensor, offset: Tensor, axis: int) -> None:
        super().__init__()
        self.register_buffer("slope", slope)
        self.register_buffer("offset", offset)
        self.axis = axis

    def forward(self, z: Tensor) -> Tensor:
        """The line at z."""
        shape = (-1, *[1] * (z.ndim - 2)) if self.axis == 1 else (-1,)
        return self.slope.to(z).view(shape) * z + self.offset.to(z).view(shape)


def first_layers(model: nn.Module, spot: Spot, seen: Moments | None) -> tuple[Tensor, Tensor]:
    """Weight and bias of layer, norms and line together."""
    weight, bias = weight_and_bias(model.get_submodule(spot.layer))
    for name in spot.norms:
        scale, shift = batch_norm_as_affine(model.get_submodule(name), weight)
        weight, bias = by_row(scale, weight), scale * bias + shift
    if seen is not None:
        slope, offset = seen.fit()
        weight, bias = by_row(slope, weight), slope * bias + offset
    return weight, bias


def batch_norm_as_affine(norm: nn.Module, like: Tensor) -> tuple[Tensor, Tensor]:
    """A batch norm in evaluation as scale and shift, in float64."""
    assert isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d)
    mean, variance = norm.running_mean, norm.running_var
    assert isinstance(mean, Tensor)
    assert isinstance(variance, Tensor)
    gamma = norm.weight.detach() if norm.affine else torch.ones_like(mean)
    beta = norm.bias.detach() if norm.affine else torch.zeros_like(mean)
    return norm_as_affine(gamma.to(like), beta.to(like), mean.to(like), variance.to(like), norm.eps)


def merged_layer(model: nn.Module, spot: Spot, seen: Moments | None) -> WeightLayer:
    """The one layer that stands for the spot."""
    weight, bias = first_layers(model, spot, seen)
    first = model.get_submodule(spot.layer)
    if spot.block:
        return layer_with(weight + identity_kernel(weight), bias, first, first)
    second = model.get_submodule(spot.into)
    outer, shift = weight_and_bias(second)
    stride = first.stride if isinstance(first, CONVOLUTIONS) else 1
    return layer_with(composed_weight(outer, weight, stride), through(outer, bias) + shift, first, second)


def identity_kernel(weight: Tensor) -> Tensor:
    """The kernel of x ↦ x, of a square weight's shape."""
    kernel = torch.zeros_like(weight)
    center = tuple(size // 2 for size in weight.shape[2:])
    index = torch.arange(len(weight))
    kernel[(index, index, *center)] = 1.0
    return kernel


def layer_with(weight: Tensor, bias: Tensor, first: nn.Module, second: nn.Module) -> WeightLayer:
    """A layer of the first one's kind and padding, and of both strides."""
    with torch.random.fork_rng(devices=[]):
        if isinstance(first, CONVOLUTIONS) and isinstance(second, CONVOLUTIONS):
            stride = tuple(a * b for a, b in zip(first.stride, second.stride, strict=True))
            stride = first.stride if second is first else stride
            outputs, inputs, *kernel = weight.shape
            layer = type(first)(inputs, outputs, tuple(kernel), stride, first.padding)  # pyright: ignore[reportArgumentType]
        else:
            layer = nn.Linear(weight.shape[1], weight.shape[0])
    layer.to(first.get_parameter("weight")).train(first.training)
    with torch.no_grad():
        layer.weight.copy_(weight)
        assert isinstance(layer.bias, Tensor)
        layer.bias.copy_(bias)
    return layer


def growth(first: nn.Module, second: nn.Module, layer: WeightLayer) -> float:
    """Multiplications of the merged layer over those of the two, per output."""
    often = torch.Size(second.stride).numel() if isinstance(second, CONVOLUTIONS) else 1
    two = first.get_parameter("weight").numel() * often + second.get_parameter("weight").numel()
    return layer.weight.numel() / two


def spliced(model: nn.Module, spot: Spot, layer: WeightLayer) -> None:
    """Put the merged layer where the second one was (or the block), and take the others out, in place."""
    model.set_submodule(spot.block or spot.into, layer)
    if not spot.block:
        remove_modules(model, [spot.layer, *spot.norms, *([spot.bend.name] if spot.bend else [])])


def remove_modules(model: nn.Module, names: Sequence[str]) -> None:
    """Out of sequences for good, elsewhere replaced by the identity."""
    for name in names:
        above, _, last = name.rpartition(".")
        parent = model.get_submodule(above)
        if isinstance(parent, nn.Sequential):
            del parent._modules[last]  # pyright: ignore[reportPrivateUsage]  (del parent[i] would rename the others)
        else:
            parent.set_submodule(last, nn.Identity())
