"""A linear map put after a layer becomes part of the layer."""

import copy

import torch
from torch import Tensor, nn

from torchlift.core.stored import scale_rows
from torchlift.errors import TorchliftError

LINEAR = (nn.Linear,)
CONVOLUTION = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
LAYERS = (*LINEAR, *CONVOLUTION, *TRANSPOSED)


def last_layer(module: nn.Module) -> nn.Module:
    """The layer that makes the output of a module: its own, or the last one of a sequence."""
    return last_layer(module[-1]) if type(module) is nn.Sequential and len(module) else module


def check_mergeable(module: nn.Module, who: str) -> None:
    """An error unless a linear map after the module can be merged into it exactly."""
    layer = last_layer(module)
    if type(layer) not in LAYERS:
        raise TorchliftError(
            f"{who}: a linear lifter merges into Linear and Conv layers (or a Sequential that ends in one), "
            f"not into {type(layer).__name__}; name such a layer, or use another kind."
        )
    groups = layer.groups if isinstance(layer, CONVOLUTION + TRANSPOSED) else 1
    if groups != 1:
        raise TorchliftError(
            f"{who}: mixes the channels of a convolution with groups={groups}; use another kind."
        )


def check_frozen(module: nn.Module, who: str) -> None:
    """An error if the layer to merge into is frozen: merging would change it."""
    if any(not parameter.requires_grad for parameter in last_layer(module).parameters()):
        raise TorchliftError(f"{who}: the layer has frozen parameters; unfreeze them or use another kind.")


def check_tied(body: nn.Module, module: nn.Module, who: str) -> None:
    """An error if the layer shares its weight with another one: merging would change both."""
    weight = last_layer(module).get_parameter("weight")
    owners = [owner for owner in body.modules() if any(p is weight for p in owner.parameters(recurse=False))]
    if len(owners) > 1:
        raise TorchliftError(
            f"{who}: its weight is shared with another layer; untie them or use another kind."
        )


def weight_after(after: Tensor, weight: Tensor, out: int = 0) -> Tensor:
    """The weight of x ↦ after · weight(x): ``after`` acts on axis ``out``, the output's.

    Stride, padding, dilation and padding mode belong to the layer and stay: ``after`` acts pointwise, later.
    """
    moved = weight.movedim(out, 0)
    return (after @ moved.flatten(1)).reshape(len(after), *moved.shape[1:]).movedim(0, out)


def scale(module: nn.Module, factor: Tensor, shift: Tensor) -> nn.Module:
    """A copy of a layer that puts out ``factor ⊙ layer(x) + shift``: exact for any number of groups.

    A weight on a grid stays on it: the factor goes into its step.
    """
    layer = copy.deepcopy(module)
    weight, bias = layer.get_parameter("weight"), layer.get_parameter("bias")
    rows = factor
    if isinstance(layer, TRANSPOSED):  # (in, out / groups, …): each block of rows has its own outputs
        rows = factor.view(layer.groups, -1)
        rows = rows.repeat_interleave(len(weight) // layer.groups, 0) if layer.groups > 1 else rows
    scale_rows(layer, "weight", rows)
    with torch.no_grad():
        bias.mul_(factor).add_(shift)
    return layer


def merge(module: nn.Module, after: Tensor, shift: Tensor | None) -> nn.Module:
    """A copy of the module that puts out ``after · module(x) + shift``."""
    module = copy.deepcopy(module)
    layer = last_layer(module)
    weight, bias = layer.get_parameter("weight"), layer.bias
    with torch.no_grad():
        weight.copy_(weight_after(after, weight, 1 if isinstance(layer, TRANSPOSED) else 0))
        if isinstance(bias, nn.Parameter):
            bias.copy_(after @ bias + (0 if shift is None else shift))
    return module
