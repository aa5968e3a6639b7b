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

from torchlift.compress.refit import LeastSquares


@dataclasses.dataclass(eq=False)
class Surgeon:
    """One reader's weights W (r, n), and the columns of each channel (channels, width), −1: none.

    The inverse of H is kept for the columns that are left alone; ``position``: where each is in it.
    """

    weight: Tensor
    inverse: Tensor
    columns: Tensor
    position: Tensor
    scale: float = 1.0

    @classmethod
    def of(cls, problem: LeastSquares, columns: Tensor) -> "Surgeon":
        """For a layer of one group, at its least-squares weights."""
        factor = torch.linalg.cholesky(problem.hessian[0])
        weight = torch.cholesky_solve(problem.linear[0], factor).mT
        energy = float(problem.energy.sum())
        position = torch.arange(weight.shape[1])
        inverse = torch.cholesky_inverse(factor)
        return cls(weight, inverse, columns, position, 1 / energy if energy > 0 else 1.0)

    def costs(self, channels: Tensor) -> Tensor:
        """ε of each of the channels."""
        costs = torch.zeros(len(channels), dtype=self.weight.dtype, device=self.weight.device)
        for width, rows in by_width(self.columns[channels]):
            index = self.columns[channels[rows]][:, :width]
            position = self.position[index]
            block = self.inverse[position[:, :, None], position[:, None, :]]
            weight = self.weight[:, index].movedim(1, 0)  # (channels, r, width)
            costs[rows] = (weight * torch.linalg.solve(block, weight.mT).mT).sum((1, 2))
        return self.scale * costs

    def remove(self, channels: Tensor) -> None:
        """Take channels out: their columns become zero, the others make up for it."""
        index = self.columns[channels].flatten()
        index = index[index >= 0]
        if not len(index):
            return
        gone = torch.zeros(len(self.position), dtype=torch.bool)
        gone[index] = True
        present = (self.position >= 0).nonzero().flatten()
        left = present[~gone[present]]
        here, others = self.position[index], self.position[left]
        across = self.inverse[here][:, others]
        moved = torch.linalg.solve(self.inverse[here][:, here], across)  # ([H⁻¹]_SS)⁻¹ [H⁻¹]_S·
        self.weight[:, left] -= self.weight[:, index] @ moved
        self.weight[:, index] = 0
        self.inverse = self.inverse[others][:, others].addmm_(across.mT, moved, alpha=-1)
        self.position = torch.full_like(self.position, -1)
        self.position[left] = torch.arange(len(left))


def by_width(columns: Tensor) -> list[tuple[int, Tensor]]:
    """(how many columns, which channels have so many)."""
    widths = (columns >= 0).sum(1)
    return [(int(w), (widths == w).nonzero().flatten()) for w in widths.unique() if int(w)]


def removal_order(
    readers: Sequence[Surgeon], candidates: Tensor, count: int, *, rounds: int = 24
) -> tuple[Tensor, Tensor]:
    """Of the ``candidates`` those to remove, greedily, and the cost ε of each when it went; the readers
    are left without them.

    Cheapest first, a few at a time where there are many: then costs are taken again.
    """
    order: list[Tensor] = []
    paid: list[Tensor] = []
    together = max(1, -(-count // rounds))
    left = count
    while left > 0:
        total = sum(
            (reader.costs(candidates).cpu().double() for reader in readers),
            torch.zeros(len(candidates)).double(),
        )
        cheapest = total.argsort(stable=True)[: min(together, left)]
        for reader in readers:
            reader.remove(candidates[cheapest])
        order.append(candidates[cheapest])
        paid.append(total[cheapest])
        stays = torch.ones(len(candidates), dtype=torch.bool)
        stays[cheapest] = False
        candidates = candidates[stays]
        left -= len(cheapest)
    none = torch.zeros(0)
    return torch.cat(order) if order else none.long(), torch.cat(paid) if paid else none.double()
