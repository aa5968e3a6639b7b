"""Validate the arguments of ``tl.invert``: one line on what is wrong."""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.convex.activations import Activation, Sigmoid, Softmax, Softplus, Tanh
from torchlift.convex.functions import Box
from torchlift.inversion.result import InversionError, RangeWarning

_MARGIN = 1e-6
_OF = {
    "mu": "chains of several layers",
    "blocks": "chains of several layers",
    "lam": "networks of MonotoneResidual layers",
    "lr": "the rivals 'adam' and 'lbfgs'",
}


def dtype_of(model: nn.Module) -> Tensor:
    """An empty tensor with the model's precision and device."""
    for parameter in model.parameters():
        if parameter.is_floating_point():
            if parameter.dtype not in (torch.float32, torch.float64):
                raise InversionError(f"tl.invert: the model is {parameter.dtype}; make it float32 or float64")
            return parameter.detach().new_empty(0)
    return torch.empty(0)


def observation(model: nn.Module, y: Any) -> Tensor:
    """y, finite, in the model's precision and place, with samples as rows."""
    if not isinstance(model, nn.Module):
        raise InversionError(f"tl.invert: model must be an nn.Module, got {type(model).__name__}")
    if not isinstance(y, Tensor):
        raise InversionError(f"tl.invert: y must be a tensor with samples as rows, got {type(y).__name__}")
    like = dtype_of(model)
    if y.ndim < 2 or len(y) == 0:
        raise InversionError(
            f"tl.invert: y must hold at least one sample as a row, got shape {tuple(y.shape)}; "
            "for a single sample pass y[None]"
        )
    if y.dtype != like.dtype or y.device != like.device:
        raise InversionError(
            f"tl.invert: y is {y.dtype} on {y.device}, but the model is {like.dtype} on {like.device}"
        )
    if not bool(torch.isfinite(y).all()):
        raise InversionError(
            f"tl.invert: y has {int((~torch.isfinite(y)).sum())} values that are NaN or infinite"
        )
    return y.detach()


def check_output(y: Tensor, output: Tensor) -> None:
    """y against what the network gives for one sample."""
    if y.shape[1:] != output.shape[1:]:
        raise InversionError(
            f"tl.invert: y has samples of shape {tuple(y.shape[1:])}, "
            f"the network gives {tuple(output.shape[1:])}"
        )


def check_start(init: Tensor | None, y: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    """The user's start, if it is one."""
    if init is None:
        return None
    if init.shape != (len(y), *shape) or init.dtype != y.dtype or not bool(torch.isfinite(init).all()):
        raise InversionError(
            f"tl.invert: init must be finite, {y.dtype} and of shape {(len(y), *shape)}, "
            f"got {init.dtype} of shape {tuple(init.shape)}"
        )
    return init.detach()


def as_box(box: Any) -> Box | None:
    """None, a Box, or a pair of ends."""
    if box is None or isinstance(box, Box):
        return box
    try:
        lo, hi = (float(end) for end in box)
    except (TypeError, ValueError):
        raise InversionError(f"tl.invert: box must be a pair (lo, hi), got {box!r}") from None
    return Box(lo, hi)


def check_positive(name: str, value: float | None) -> None:
    """Raise for numbers that are not positive."""
    if value is not None and not (isinstance(value, int | float) and 0 < value < math.inf):
        raise InversionError(f"tl.invert: {name} must be a positive number, got {value!r}")


def input_shape(model: nn.Module, shape: Any, init: Tensor | None, first: nn.Module) -> tuple[int, ...]:
    """The shape of one input: given, that of ``init``, or a Linear's number of inputs."""
    if shape is not None:
        sizes = tuple(shape)
        if not sizes or not all(isinstance(size, int) and size > 0 for size in sizes):
            raise InversionError(f"tl.invert: shape is that of one input, as in (1, 28, 28), got {shape!r}")
        return sizes
    if init is not None:
        return tuple(init.shape[1:])
    features = getattr(first, "in_features", None)
    if not isinstance(features, int):
        raise InversionError(
            f"tl.invert: the shape of one input cannot be inferred from {type(first).__name__}; "
            "pass shape=, as in (1, 28, 28)"
        )
    return (features,)


def in_range(y: Tensor, activation: Activation) -> Tensor:
    """y in dom f; values outside are projected and counted in a warning.

    Sigmoid, tanh, softplus and softmax reach the ends of their ranges only at infinity: they are kept
    1e-6 inside.
    """
    inside = activation.project(y)
    if isinstance(activation, Sigmoid):
        inside = inside.clamp(_MARGIN, 1 - _MARGIN)
    elif isinstance(activation, Tanh):
        inside = inside.clamp(_MARGIN - 1, 1 - _MARGIN)
    elif isinstance(activation, Softplus):
        inside = inside.clamp(min=_MARGIN)
    elif isinstance(activation, Softmax):
        inside = inside.clamp(min=_MARGIN) / inside.clamp(min=_MARGIN).sum(-1, keepdim=True)
    moved = (inside - y).abs() > 2 * _MARGIN
    if bool(moved.any()):
        warnings.warn(
            f"tl.invert: {int(moved.sum())} of {y.numel()} values of y lie outside the range of {activation} "
            f"and were projected onto it (by {float((inside - y).abs().max()):.3g} at most)",
            RangeWarning,
            stacklevel=4,
        )
    return inside


def check_used(used: Sequence[str], **options: Any) -> None:
    """Raise for options that would do nothing."""
    for name, value in options.items():
        if value is not None and name not in used:
            raise InversionError(f"tl.invert: {name} is an option of {_OF[name]}; leave it out here")
