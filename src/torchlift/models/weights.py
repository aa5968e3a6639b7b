"""How weights start: the two schemes the papers name."""

from typing import Literal

from torch import nn

Init = Literal["torch", "xavier", "kaiming"]
"""``torch`` keeps each layer's own default."""


def initialize(model: nn.Module, scheme: Init) -> None:
    """Draw every linear and convolution weight of ``model`` again, and set its bias to zero.

    xavier:   w ~ U(−a, a), a = √(6 / (fan_in + fan_out))      Glorot and Bengio, 2010, eq. 16
    kaiming:  w ~ N(0, 2 / fan_in)                             He et al., 2015, eq. 10
    """
    if scheme not in ("torch", "xavier", "kaiming"):
        raise ValueError(f'initialize: no scheme {scheme!r}; use "torch", "xavier" or "kaiming"')
    if scheme == "torch":
        return
    for layer in model.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            if scheme == "xavier":
                nn.init.xavier_uniform_(layer.weight)
            else:
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
