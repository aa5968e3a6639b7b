"""Who reads the channels: what each layer is given, by slice of its weight, and what it multiplies."""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from torchlift.channels.follow.constants import CONSTANT
from torchlift.channels.follow.labels import varying

LabeledSize = tuple[int, Tensor | None, int]
"""A size, the core of the labels along it where it is followed, and its dimension there."""

Slabs = tuple[Tensor, int]
"""A tensor, and the dimension along which it falls into slabs."""


@dataclasses.dataclass(frozen=True, eq=False)
class Reading:
    """A weight that reads channels along ``dim``, where its slices have ``labels``; ``others`` are the labels
    of its other dimensions, as cores."""

    labels: Tensor
    weight: Tensor
    dim: int
    others: tuple[Tensor, ...]

    def ignored(self, gone: Tensor) -> Tensor:
        """Boolean: slices that are zero in all that is left once the labels ``gone`` (Boolean) are cut."""
        live = self.weight.detach() != 0
        for core in self.others:
            live = live & ~gone[core]
        return ~live.transpose(self.dim, -1).reshape(-1, len(self.labels)).any(0).cpu()


class Readers:
    """By label of a reader's slice: the grade and the range of what it is given, and whether that folds.

    Without ``values``, only who reads: enough to know couplings and costs.
    """

    def __init__(self, labels: int, *, values: bool = True) -> None:
        self.values = values
        self.grade = torch.full((labels,), CONSTANT, dtype=torch.uint8)
        """The least grade of what comes (see ``constants``)."""
        self.low = torch.full((labels,), torch.inf, dtype=torch.float64)
        self.high = -self.low
        self.folds = torch.ones(labels, dtype=torch.bool)
        self.readings: list[Reading] = []
        self.modules: dict[int, str] = {}
        """The module at work, by the first label of what it reads."""
        self.averaged = torch.full((labels,), CONSTANT, dtype=torch.uint8)
        """The least grade of a zero there that a norm averages over; VARIES where it is not zero."""
        self.reader = torch.zeros(labels, dtype=torch.bool)
        self.looked_up = torch.zeros(labels, dtype=torch.bool)
        """An embedding's features: written, even where the same weight is read elsewhere."""
        self.products: list[tuple[LabeledSize, ...]] = []

    def reads(self, f: Any, labels: Tensor, inputs: Slabs, weight: Slabs, *, foldable: bool) -> None:
        """A reader at work: the slabs of what it is given meet those of its weight, one by one."""
        self.reader[labels] = True
        if not self.values:
            return
        grade, low, high = extremes(f, *inputs)
        self.grade.scatter_reduce_(0, labels, grade, "amin")
        self.low.scatter_reduce_(0, labels, low, "amin")
        self.high.scatter_reduce_(0, labels, high, "amax")
        self.folds[labels] &= foldable
        matrix, dim = weight[0], weight[1] % weight[0].ndim
        others = [core for core in f.look(matrix).cores if dim not in varying(core)]
        self.readings.append(Reading(labels, matrix, dim, tuple(others)))
        for label in labels[:1].tolist():
            self.modules.setdefault(label, f.module)

    def averages(self, f: Any, labels: Tensor, values: Tensor, dim: int) -> None:
        """A norm over a dimension of channels at work."""
        if self.values:
            grade, low, high = extremes(f, values, dim)
            grade[(low != 0) | (high != 0)] = 0
            self.averaged.scatter_reduce_(0, labels, grade, "amin")

    @property
    def uniform(self) -> Tensor:
        """Boolean: a reader's slice sees one number only, but for rounding."""
        return self.high - self.low <= 1e-6 * torch.maximum(self.low.abs(), self.high.abs())

    @property
    def value(self) -> Tensor:
        """That number."""
        return torch.where(self.low == self.high, self.low, 0.5 * (self.low + self.high))

    def count(
        self, a: torch.Size, b: torch.Size, left: list[Tensor], right: list[Tensor], over: Tensor | None
    ) -> None:
        """The multiplications of a product (b, m, k) × (b, k, n)."""
        self.products.append(
            (
                (a[:-2].numel(), side([*left, *right], 0), 0),
                (a[-2], side(left, 1), 1),
                (b[-1], side(right, 2), 2),
                (a[-1], over, 0),
            )
        )

    def count_maps(
        self,
        out: Tensor,
        kernel: Tensor,
        writes: Tensor | None,
        channels: Tensor | None,
        groups: int,
        transposed: bool,
    ) -> None:
        """The multiplications of a convolution; ``channels`` are those that one of its outputs reads."""
        positions = kernel.shape[2:].numel() * out.numel() // out.shape[1]
        inputs = kernel.shape[0] // groups if transposed else kernel.shape[1]
        self.products.append(
            (
                (positions, None, 0),
                (out.shape[1], writes, 0),
                (inputs, channels, 0),
            )
        )


def extremes(f: Any, values: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """The least grade, the least and the greatest value along a dimension; of what varies, zeros."""
    dim %= values.ndim
    size = values.shape[dim]
    grade = f.constants.of(values)
    rest = [d for d in range(values.ndim) if d != dim]
    grade = (grade.amin(rest, keepdim=True) if rest else grade).expand_as(
        grade.new_empty(shape_of(dim, size, values.ndim))
    )
    grade = grade.flatten().clone()
    low, high = torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64)
    fixed = grade.nonzero().flatten()
    if len(fixed):
        rows = values.detach().index_select(dim, fixed.to(values.device)).transpose(dim, 0).flatten(1)
        low[fixed], high[fixed] = rows.amin(1).double().cpu(), rows.amax(1).double().cpu()
    return grade, low, high


def shape_of(dim: int, size: int, ndim: int) -> list[int]:
    """A size along one dimension, 1 along the others."""
    return [size if d == dim else 1 for d in range(ndim)]


def side(cores: list[Tensor], dim: int) -> Tensor | None:
    """The core that differs along a dimension."""
    return next((core for core in cores if dim in varying(core)), None)
