"""Soft sharing as parts of a lifted problem: a group's templates and coefficients, a layer's use of them."""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from torchlift.core import Node
from torchlift.methods.sharing import mixing as math


class Bank(Node):
    """Templates T and coefficients α of a group of layers; penalty −λ Σ S(α)."""

    # A decaying coefficient would only ask its templates to grow; the source has no decay on them either.
    options: Mapping[str, Mapping[str, Any]] = {"alpha": {"weight_decay": 0.0}}
    unliftable: ClassVar[tuple[str, ...]] = ("alpha",)

    def __init__(self, group: str, layers: tuple[str, ...], weights: Tensor, k: int, strength: float) -> None:
        super().__init__()
        factors, alpha = math.factorize(weights, k)
        self.templates, self.alpha = nn.Parameter(factors), nn.Parameter(alpha)
        self.group, self.layers, self.strength = group, layers, strength

    def weight(self, layer: int) -> Tensor:
        """Σᵢ αᵢ⁽ˡ⁾ T⁽ⁱ⁾."""
        return math.mix(self.templates, self.alpha[layer])

    def similarity(self) -> Tensor:
        """|cosine| of the layers' coefficients, layers × layers."""
        return math.similarity(self.alpha.detach())

    def penalty(self) -> Tensor | float:
        """−λ Σ S (eq. 3.19)."""
        return self.strength * math.recurrence(self.alpha) if self.strength else 0.0


class Mixed(Node):
    """w = Σᵢ αᵢ T⁽ⁱ⁾: one layer's row of a bank. Of the layers of a group, the first registers the bank."""

    def __init__(self, bank: Bank, layer: int) -> None:
        super().__init__()
        self.shared = [bank]  # a list: the bank is a part of the first layer alone
        self.layer = layer
        if layer == 0:
            self.add_module("bank", bank)

    def forward(self) -> Tensor:
        """The layer's weight."""
        return self.shared[0].weight(self.layer)

    def project(self) -> Tensor:
        """The same, for good."""
        return self()


def banks(problem: nn.Module) -> dict[str, Bank]:
    """The groups of a lifted problem by name."""
    return {module.group: module for module in problem.modules() if isinstance(module, Bank)}
