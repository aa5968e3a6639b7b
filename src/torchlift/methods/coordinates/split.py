"""Weights whose rows are several matrices: each a coordinate of its own."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from torchlift.core import Node, WeightLift
from torchlift.errors import SelectionError, TorchliftError


class RowBlocks(Node):
    """W = [V₁; …; V_k]."""

    def __init__(self, weight: Tensor, count: int) -> None:
        super().__init__()
        self.parts = nn.ParameterList(block.clone() for block in weight.chunk(count))

    def forward(self) -> Tensor:
        """The weight."""
        return torch.cat(list(self.parts))

    def project(self) -> Tensor:
        """The weight, for good."""
        return self()


@dataclasses.dataclass(frozen=True)
class Split(WeightLift):
    """W = [V₁; …; V_k]: the rows of a weight in ``parts`` equal blocks, trained as weights of their own.

    A fused layer is one matrix to an optimizer that looks at matrices (Muon, SOAP), although its blocks
    have nothing to do with one another: the queries, keys and values of an attention, one block per head
    each. Muon then balances every block by itself, with smaller products.
    The function is the same, before and after, and nothing is left of it in the end. Element-wise
    optimizers, such as AdamW, do not see it. Weights of ``where`` whose rows do not come in ``parts`` blocks
    of two or more are passed over.
    """

    where: str = "*qkv.weight"
    parts: int = 3

    exact: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.parts < 2:
            raise TorchliftError(f"Split's parts are two or more, got {self.parts}.")

    def nodes(self, weights: Mapping[str, Tensor]) -> Mapping[str, Node]:
        """One node per weight whose rows come in so many blocks."""
        able = {name: w for name, w in weights.items() if len(w) % self.parts == 0 and len(w) > self.parts}
        if not able:
            rows = ", ".join(f"{name} has {len(w)} rows" for name, w in weights.items())
            raise SelectionError(f"{self!r} finds no equal blocks of two rows or more: {rows}.")
        return {name: RowBlocks(weight, self.parts) for name, weight in able.items()}
