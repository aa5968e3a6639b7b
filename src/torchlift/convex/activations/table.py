"""The table of activations, by name."""

import math
from collections.abc import Callable
from typing import Any

from torchlift.convex.activations.base import Activation
from torchlift.convex.activations.piecewise import Clip, Hardsigmoid, LeakyReLU, Linear
from torchlift.convex.activations.simplex import Simplex, Softmax
from torchlift.convex.activations.smooth import ELU, Sigmoid, Softplus, Tanh
from torchlift.convex.activations.threshold import (
    EntrywiseSoftThreshold,
    GroupSoftThreshold,
    NonnegSoftThreshold,
    Sign,
)

_TABLE: dict[str, Callable[..., Activation]] = {
    "linear": Linear,
    "relu": lambda: Clip(0.0, math.inf),
    "leaky_relu": LeakyReLU,
    "elu": ELU,
    "clip": Clip,
    "hard_tanh": lambda: Clip(-1.0, 1.0),
    "relu6": lambda: Clip(0.0, 6.0),
    "hardsigmoid": Hardsigmoid,
    "sigmoid": Sigmoid,
    "tanh": Tanh,
    "soft_threshold": EntrywiseSoftThreshold,
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
