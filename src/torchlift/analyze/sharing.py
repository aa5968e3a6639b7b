"""Which layers of a network do alike, and which weights it uses several times."""

from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from torchlift.core import Problem
from torchlift.errors import SelectionError


@runtime_checkable
class Group(Protocol):
    """A lifted group of layers that knows how alike they are, as :class:`torchlift.lifts.Templates` makes."""

    group: str
    """Its name."""

    def similarity(self) -> Tensor:
        """|cosine| of the layers' coefficients, layers × layers."""
        ...


def similarity(problem: Problem) -> dict[str, Tensor]:
    """S = |cos(α⁽ˡ⁾, α⁽ᵐ⁾)|, layers × layers, of every group of layers that share softly."""
    groups = {module.group: module for module in problem.modules() if isinstance(module, Group)}
    if not groups:
        raise SelectionError("similarity: no layers share weights here; lift with torchlift.lifts.Templates.")
    return {name: module.similarity() for name, module in groups.items()}


def reuse(model: nn.Module) -> dict[str, dict[str, float]]:
    """Weights that several layers use: ``{first layer: {layer: scale}}``, in the order of the model."""
    named = dict(model.named_parameters(remove_duplicate=False))
    uses: dict[int, dict[str, float]] = {}
    for name, parameter in named.items():
        layer = sharing_layer(name)
        scale = named.get(f"{layer}.scale") if f"{layer}.inner." in name else None
        uses.setdefault(id(parameter), {})[layer] = 1.0 if scale is None else scale.item()
    return {next(iter(layers)): layers for layers in uses.values() if len(layers) > 1}


def route(model: nn.Module) -> list[tuple[str, str]]:
    """Layers with a matrix or kernel in the order of the model, each with the first that uses its weight."""
    first: dict[int, str] = {}
    uses: dict[str, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if parameter.ndim > 1:
            uses[sharing_layer(name)] = first.setdefault(id(parameter), sharing_layer(name))
    return list(uses.items())


def sharing_layer(name: str) -> str:
    """The layer a parameter belongs to, whatever stands between them."""
    return name.rpartition(".")[0].removesuffix(".inner")
