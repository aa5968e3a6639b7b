"""What flows through the channels while a model runs: the range at each reader, and the multiplications."""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from torchlift.channels.follow.labels import varying

Extent = tuple[int, Tensor | None, int]
"""A size, the core of the labels along it where it is followed, and its dimension there."""


Slabs = tuple[Tensor, int]
"""A tensor, and the dimension along which it falls into slabs."""


class Watch:
    """By label of a reader's slice: least and greatest input, whether it is ignored, whether it folds.

    Without ``values``, only who reads and who averages: enough to know couplings and costs.
    """

    def __init__(self, labels: int, *, values: bool = True) -> None:
        self.values = values
        self.low = torch.full((labels,), torch.inf, dtype=torch.float64)
        self.high = -self.low
        self.scale = torch.zeros(labels, dtype=torch.float64)
        """The largest input of the reader, over all its slices."""
        self.zero = torch.ones(labels, dtype=torch.bool)
        """The reader's own slice is zero: it ignores what comes."""
        self.folds = torch.ones(labels, dtype=torch.bool)
        self.readers: dict[int, str] = {}
        """The module at work, by the first label of what it reads."""
        self.averaged = torch.zeros(labels, dtype=torch.bool)
        """A norm averages over something other than zero there."""
        self.reader = torch.zeros(labels, dtype=torch.bool)
        self.looked_up = torch.zeros(labels, dtype=torch.bool)
        """An embedding's features: written, even where the same weight is read elsewhere."""
        self.products: list[tuple[Extent, ...]] = []
        self.counting = True

    def reads(self, f: Any, labels: Tensor, given: Slabs, weight: Slabs, *, foldable: bool) -> None:
        """A reader at work: the slabs of what it is given meet those of its weight, one by one."""
        self.reader[labels] = True
        if not self.values:
            return
        values, slices = rows(given), rows(weight)
        self.low.scatter_reduce_(0, labels, values.amin(0).double().cpu(), "amin")
        self.high.scatter_reduce_(0, labels, values.amax(0).double().cpu(), "amax")
        self.scale[labels] = torch.maximum(self.scale[labels], values.abs().max().double().cpu())
        self.zero[labels] &= (slices == 0).all(0).cpu()
        self.folds[labels] &= foldable
        for label in labels[:1].tolist():
            self.readers.setdefault(label, f.module)

    def averages(self, labels: Tensor, values: Tensor) -> None:
        """A norm over the last dimension at work."""
        if self.values:
            self.averaged[labels] |= (rows((values, -1)) != 0).any(0).cpu()

    def count(self, a: Any, b: Any, left: list[Tensor], right: list[Tensor], over: Tensor | None) -> None:
        """The multiplications of a product (b, m, k) × (b, k, n)."""
        if not self.counting:
            return
        batch, rows, columns = a.tensor.shape[:-2].numel(), a.tensor.shape[-2], b.tensor.shape[-1]
        self.products.append(
            (
                (batch, side([*left, *right], 0), 0),
                (rows, side(left, 1), 1),
                (columns, side(right, 2), 2),
                (a.tensor.shape[-1], over, 0),
            )
        )

    def count_maps(
        self,
        out: Tensor,
        kernel: Tensor,
        made: Tensor | None,
        channels: Tensor | None,
        groups: int,
        transposed: bool,
    ) -> None:
        """The multiplications of a convolution."""
        if not self.counting:
            return
        places = kernel.shape[2:].numel() * out.numel() // out.shape[1]
        inputs = kernel.shape[0] // groups if transposed else kernel.shape[1]
        self.products.append(
            (
                (places, None, 0),
                (out.shape[1], made, 0),
                (inputs, channels if groups == 1 else None, 0),
            )
        )


def rows(slabs: Slabs) -> Tensor:
    """A tensor's entries as (everything else, the dimension)."""
    turned = slabs[0].detach().transpose(slabs[1], -1)
    return turned.reshape(-1, turned.shape[-1])


def side(cores: list[Tensor], dim: int) -> Tensor | None:
    """The core that differs along a dimension."""
    return next((core for core in cores if dim in varying(core)), None)


@dataclasses.dataclass(frozen=True, eq=False)
class Still:
    """Constant through all runs: which readers' slices see one number only, and which."""

    constant: Tensor
    value: Tensor

    @classmethod
    def of(cls, watches: list[Watch], tolerance: float) -> "Still":
        """From watches of one set of weights each; the first set is the model's own."""
        constant = torch.ones(len(watches[0].low), dtype=torch.bool)
        for watch in watches:
            constant &= watch.high - watch.low <= tolerance * watch.scale
        first = watches[0]
        exact = first.low == first.high
        return cls(constant, torch.where(exact, first.low, 0.5 * (first.low + first.high)))
