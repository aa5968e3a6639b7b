"""Activations as gradients of conjugates: the table of lifted training, by name."""

import math
from collections.abc import Callable
from typing import Any

from torchlift.lifted.activations.base import Activation
from torchlift.lifted.activations.piecewise import Clip, Hardsigmoid, LeakyReLU, Linear
from torchlift.lifted.activations.pooling import max_divergence, max_divergence_gradient
from torchlift.lifted.activations.simplex import Simplex, Softmax, project_simplex
from torchlift.lifted.activations.smooth import Sigmoid, Softplus, Tanh
from torchlift.lifted.activations.threshold import (
    GroupSoftThreshold,
    NonnegSoftThreshold,
    Sign,
    SoftThreshold,
)

__all__ = [
    "Activation",
    "Clip",
    "GroupSoftThreshold",
    "Hardsigmoid",
    "LeakyReLU",
    "Linear",
    "NonnegSoftThreshold",
    "Sigmoid",
    "Sign",
    "Simplex",
    "SoftThreshold",
    "Softmax",
    "Softplus",
    "Tanh",
    "get",
    "max_divergence",
    "max_divergence_gradient",
    "names",
    "project_simplex",
]

_TABLE: dict[str, Callable[..., Activation]] = {
    "linear": Linear,
    "relu": lambda: Clip(0.0, math.inf),
    "leaky_relu": LeakyReLU,
    "clip": Clip,
    "hard_tanh": lambda: Clip(-1.0, 1.0),
    "relu6": lambda: Clip(0.0, 6.0),
    "hardsigmoid": Hardsigmoid,
    "sigmoid": Sigmoid,
    "tanh": Tanh,
    "soft_threshold": SoftThreshold,
    "nonneg_soft_threshold": NonnegSoftThreshold,
    "softplus": Softplus,
    "simplex": Simplex,
    "softmax": Softmax,
    "group_soft_threshold": GroupSoftThreshold,
    "sign": Sign,
}


def names() -> tuple[str, ...]:
    """The names ``get`` knows."""
    return tuple(_TABLE)


def get(name: str | Activation, **parameters: Any) -> Activation:
    """The activation called ``name``, such as ``get("leaky_relu", slope=0.1)``; activations pass through."""
    if isinstance(name, Activation):
        return name
    if name not in _TABLE:
        raise ValueError(f"activations.get: no activation {name!r}; known: {', '.join(_TABLE)}")
    try:
        return _TABLE[name](**parameters)
    except TypeError as error:
        raise TypeError(f"activations.get({name!r}): {error}") from None
