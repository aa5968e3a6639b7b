"""Which layers of a network do alike, and which weights it uses several times."""

from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from torchlift.core import Problem
from torchlift.errors import SelectionError


@runtime_checkable
class Group(Protocol):
    """A lifted group of layers that knows how alike they are, as :class:`torchlift.lifts.Templates` makes."""

    def similarity(self) -> Tensor:
        """|cosine| of the layers' coefficients, layers × layers."""
        ...


def similarity(problem: Problem) -> dict[str, Tensor]:
    """S = |cos(α⁽ˡ⁾, α⁽ᵐ⁾)|, layers × layers, of every group of layers that share softly."""
    found = {str(getattr(part, "group", "")): part for part in problem.modules() if isinstance(part, Group)}
    if not found:
        raise SelectionError("similarity: no layers share weights here; lift with torchlift.lifts.Templates.")
    return {name: part.similarity() for name, part in found.items()}


def reuse(model: nn.Module) -> dict[str, list[str]]:
    """The layers that use each weight that several use, in order of their place in the model."""
    uses: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        uses.setdefault(id(parameter), []).append(name.rpartition(".")[0].removesuffix(".inner"))
    return {names[0]: names for names in uses.values() if len(names) > 1}
