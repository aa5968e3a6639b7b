"""The multilayer perceptron."""

from collections import OrderedDict
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from torch import nn


class MLP(nn.Sequential):
    """x ↦ W_L a(… a(W_1 x + b_1) …) + b_L with layers ``linear1``, …, ``head`` of the given sizes.

    ``MLP(64, 32, 10)`` has one hidden layer of 32. It is a sequence, so that methods which need the
    layers in order can walk it; ``flatten`` puts an ``nn.Flatten`` in front, for images.
    """

    def __init__(
        self,
        *sizes: int,
        activation: Callable[[], nn.Module] = nn.ReLU,
        bias: bool = True,
        flatten: bool = False,
    ) -> None:
        if len(sizes) < 2:
            raise ValueError(f"MLP{sizes} has no layer; give at least two sizes, as in MLP(64, 10)")
        layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten()) if flatten else OrderedDict()
        for index, (inputs, outputs) in enumerate(pairwise(sizes[:-1]), start=1):
            layers[f"linear{index}"] = nn.Linear(inputs, outputs, bias)
            layers[f"activation{index}"] = activation()
        layers["head"] = nn.Linear(sizes[-2], sizes[-1], bias)
        super().__init__(layers)

    def __getitem__(self, index: Any) -> Any:
        """A layer, or a plain sequence of some: ``model[:-1]``."""
        if isinstance(index, slice):
            return nn.Sequential(OrderedDict(list(self.named_children())[index]))
        return super().__getitem__(index)
