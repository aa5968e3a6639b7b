"""Data in three parts."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor]
"""Inputs and targets with the samples along the first dimension."""

Kind = Literal["classification", "regression", "binary", "text"]


@dataclasses.dataclass(frozen=True, eq=False)
class Splits:
    """What is fitted, what is watched, and what is reported; disjoint."""

    train: Pair
    valid: Pair
    test: Pair
    kind: Kind
    schema: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    """What the inputs and targets mean (:mod:`torchlift.data.schema`), for whoever uses the model later."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.train[0].shape[1:])

    @property
    def outputs(self) -> int:
        """How many numbers a model must put out: classes, or the width of the target."""
        if self.kind in ("classification", "text"):
            return 1 + max(int(y.max()) for _, y in (self.train, self.valid, self.test))
        return self.train[1].shape[1]

    @property
    def loss(self) -> Literal["cross_entropy", "mse", "bce"]:
        """The loss that suits the kind."""
        if self.kind == "regression":
            return "mse"
        return "bce" if self.kind == "binary" else "cross_entropy"


def split(
    x: Tensor, y: Tensor, kind: Kind, seed: int = 0, fractions: tuple[float, float] = (0.1, 0.2)
) -> Splits:
    """Shuffle by ``seed`` and set aside the given fractions for validation and test (70–10–20)."""
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    aside = [max(1, round(fraction * len(x))) for fraction in fractions]
    rows = order.split([len(x) - sum(aside), *aside])
    train, valid, test = ((x[of], y[of]) for of in rows)
    return Splits(train, valid, test, kind)


def hold_out(pair: Pair, fraction: float, seed: int) -> tuple[Pair, Pair]:
    """Shuffle by ``seed`` and set a fraction aside."""
    x, y = pair
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    count = max(1, round(fraction * len(x)))
    rest, aside = order[count:], order[:count]
    return (x[rest], y[rest]), (x[aside], y[aside])
