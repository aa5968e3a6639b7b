"""Plain layers whose weight is stored elsewhere: one weight, many uses."""

from typing import Any

from torch import Tensor, nn
from torch.func import functional_call

from torchlift.core.node import Declares
from torchlift.flow.graph import LINEAR
from torchlift.methods.sharing.mixing import mix

OTHERS = ("transformers.pytorch_utils:Conv1D",)
"""Layers of other packages that are linear too, by path: they need not be installed."""


class Use(Declares, nn.Module):
    """A layer (``inner``) whose own weight, called ``leaf``, is made from stored tensors; else the layer.

    Attributes it does not have are the layer's: models read ``conv.stride`` or hand ``linear.weight`` on.
    """

    def __init__(self, inner: nn.Module, leaf: str) -> None:
        super().__init__()
        self.inner, self.leaf = inner, leaf

    def effective(self) -> Tensor:
        """The weight the layer acts with."""
        raise NotImplementedError(f"{type(self).__name__} has no weight of its own")

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            inner = self.__dict__.get("_modules", {}).get("inner")
            if inner is None or name == "inner":
                raise
            return self.effective() if name == self.__dict__["leaf"] else getattr(inner, name)


class ScaledUse(Use):
    """f(x; c V) = f(c x; V): a linear layer that uses a stored weight V with a scale (and sign) of its own.

    V is a parameter of ``inner`` and of the other layers that use it, the same tensor in all.
    """

    def __init__(self, inner: nn.Module, leaf: str, scale: float) -> None:
        super().__init__(inner, leaf)
        weight = inner.get_parameter(leaf)
        self.scale = nn.Parameter(weight.new_tensor(scale))
        self.options = {"scale": {"weight_decay": 0.0}}
        attends = isinstance(inner, nn.MultiheadAttention)
        self.inputs = ("query", "key", "value") if attends else ("input", "x")

    def effective(self) -> Tensor:
        """c V."""
        return self.scale * self.inner.get_parameter(self.leaf)

    def forward(self, *args: Any, **named: Any) -> Any:
        """The layer at c x; of attention, at scaled queries, keys and values."""
        count = 3 if isinstance(self.inner, nn.MultiheadAttention) else 1
        weights: dict[int, Tensor] = {}  # attention asks whether its inputs are one tensor

        def scaled(x: Tensor) -> Tensor:
            return weights.setdefault(id(x), self.scale * x)

        if not args and not set(self.inputs) & set(named):
            kind = type(self.inner).__name__
            raise TypeError(f"{kind} was called without an input to scale: {list(named)}.")
        head, rest = args[:count], args[count:]
        other = {name: scaled(x) if name in self.inputs else x for name, x in named.items()}
        return self.inner(*map(scaled, head), *rest, **other)


class Blended(Use):
    """f(x; Σᵢ αᵢ T⁽ⁱ⁾): a layer that mixes its weight from templates stored once, at every call."""

    def __init__(self, inner: nn.Module, leaf: str, templates: nn.Parameter, alpha: Tensor) -> None:
        super().__init__(inner, leaf)
        setattr(inner, leaf, None)  # a hole: the layer has no weight but the mixture
        self.templates, self.alpha = templates, nn.Parameter(alpha)
        self.options = {"alpha": {"weight_decay": 0.0}}

    def effective(self) -> Tensor:
        """Σᵢ αᵢ T⁽ⁱ⁾."""
        return mix(self.templates, self.alpha)

    def forward(self, *args: Any, **named: Any) -> Any:
        """The layer with the mixture as its weight."""
        return functional_call(self.inner, {self.leaf: self.effective()}, args, named)


def scalable(layer: nn.Module, leaf: str) -> bool:
    """Whether scaling a layer's input is the same as scaling this weight of it."""
    kind = type(layer)
    if isinstance(layer, nn.MultiheadAttention):
        return leaf == "in_proj_weight"
    linear = isinstance(layer, LINEAR) or f"{kind.__module__}:{kind.__qualname__}" in OTHERS
    return linear and leaf == "weight"
