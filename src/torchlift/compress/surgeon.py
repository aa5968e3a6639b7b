"""The structured optimal brain surgeon: which groups of columns a layer misses least, and how the others
make up.

    ε_S = Σ_rows w_S ([H⁻¹]_SS)⁻¹ w_Sᵀ,    δ = −w_S ([H⁻¹]_SS)⁻¹ [H⁻¹]_S·,    H⁻¹ ← H⁻¹ − [H⁻¹]_·S
    ([H⁻¹]_SS)⁻¹ [H⁻¹]_S·

A set of channels is read by several layers: the costs of one channel add up over them, each relative to
what its
layer puts out.
"""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from torchlift.compress.refit import Quadratic


@dataclasses.dataclass(eq=False)
class Surgeon:
    """One reader's weights W (r, n), and the columns of each channel (channels, width), −1: none.

    The inverse of H is kept for the columns that are left alone; ``place`` says where each of them is in it.
    """

    weight: Tensor
    inverse: Tensor
    columns: Tensor
    place: Tensor
    scale: float = 1.0

    @classmethod
    def of(cls, problem: Quadratic, columns: Tensor) -> "Surgeon":
        """For a layer of one group, at its least-squares weights."""
        factor = torch.linalg.cholesky(problem.hessian[0])
        weight = torch.cholesky_solve(problem.linear[0], factor).mT
        energy = float(problem.energy.sum())
        place = torch.arange(weight.shape[1])
        inverse = torch.cholesky_inverse(factor)
        return cls(weight, inverse, columns, place, 1 / energy if energy > 0 else 1.0)

    def costs(self, channels: Tensor) -> Tensor:
        """ε of each of the channels."""
        found = torch.zeros(len(channels), dtype=self.weight.dtype, device=self.weight.device)
        for width, rows in by_width(self.columns[channels]):
            index = self.columns[channels[rows]][:, :width]
            place = self.place[index]
            block = self.inverse[place[:, :, None], place[:, None, :]]
            weight = self.weight[:, index].movedim(1, 0)  # (channels, r, width)
            found[rows] = (weight * torch.linalg.solve(block, weight.mT).mT).sum((1, 2))
        return self.scale * found

    def remove(self, channels: Tensor) -> None:
        """Take channels out: their columns become zero, the others make up for it."""
        index = self.columns[channels].flatten()
        index = index[index >= 0]
        if not len(index):
            return
        gone = torch.zeros(len(self.place), dtype=torch.bool)
        gone[index] = True
        known = (self.place >= 0).nonzero().flatten()
        left = known[~gone[known]]
        here, others = self.place[index], self.place[left]
        across = self.inverse[here][:, others]
        moved = torch.linalg.solve(self.inverse[here][:, here], across)  # ([H⁻¹]_SS)⁻¹ [H⁻¹]_S·
        self.weight[:, left] -= self.weight[:, index] @ moved
        self.weight[:, index] = 0
        self.inverse = self.inverse[others][:, others].addmm_(across.mT, moved, alpha=-1)
        self.place = torch.full_like(self.place, -1)
        self.place[left] = torch.arange(len(left))


def by_width(columns: Tensor) -> list[tuple[int, Tensor]]:
    """(how many columns, which channels have so many)."""
    widths = (columns >= 0).sum(1)
    return [(int(w), (widths == w).nonzero().flatten()) for w in widths.unique() if int(w)]


def removal_order(
    readers: Sequence[Surgeon], known: Tensor, count: int, *, rounds: int = 24
) -> tuple[Tensor, Tensor]:
    """Of the channels ``known`` those to remove, greedily, and the cost ε of each when it went; the readers
    are left without them.

    Cheapest first, a few at a time where there are many: then costs are taken anew.
    """
    order: list[Tensor] = []
    paid: list[Tensor] = []
    together = max(1, -(-count // rounds))
    left = count
    while left > 0:
        total = sum(
            (reader.costs(known).cpu().double() for reader in readers), torch.zeros(len(known)).double()
        )
        cheapest = total.argsort(stable=True)[: min(together, left)]
        for reader in readers:
            reader.remove(known[cheapest])
        order.append(known[cheapest])
        paid.append(total[cheapest])
        stays = torch.ones(len(known), dtype=torch.bool)
        stays[cheapest] = False
        known = known[stays]
        left -= len(cheapest)
    none = torch.zeros(0)
    return torch.cat(order) if order else none.long(), torch.cat(paid) if paid else none.double()
