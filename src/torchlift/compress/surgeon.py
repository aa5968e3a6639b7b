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
    """One reader's weights W (r, n), its H⁻¹ (n, n), and the columns of each channel (channels, width),
    −1: none."""

    weight: Tensor
    inverse: Tensor
    columns: Tensor
    scale: float = 1.0

    @classmethod
    def of(cls, problem: Quadratic, columns: Tensor) -> "Surgeon":
        """For a layer of one group, at its least-squares weights."""
        factor = torch.linalg.cholesky(problem.hessian[0])
        weight = torch.cholesky_solve(problem.linear[0], factor).mT
        energy = float(problem.energy.sum())
        return cls(weight, torch.cholesky_inverse(factor), columns, 1 / energy if energy > 0 else 1.0)

    def costs(self, channels: Tensor) -> Tensor:
        """ε of each of the channels."""
        found = torch.zeros(len(channels), dtype=self.weight.dtype, device=self.weight.device)
        for width, rows in by_width(self.columns[channels]):
            index = self.columns[channels[rows]][:, :width]
            block = self.inverse[index[:, :, None], index[:, None, :]]
            weight = self.weight[:, index].movedim(1, 0)  # (channels, r, width)
            found[rows] = (weight * torch.linalg.solve(block, weight.mT).mT).sum((1, 2))
        return self.scale * found

    def remove(self, channels: Tensor) -> None:
        """Take channels out: their columns become zero, the others make up for it."""
        index = self.columns[channels].flatten()
        index = index[index >= 0]
        if not len(index):
            return
        rows = self.inverse[index]
        moved = torch.linalg.solve(rows[:, index], rows)  # ([H⁻¹]_SS)⁻¹ [H⁻¹]_S·
        self.weight = self.weight - self.weight[:, index] @ moved
        self.inverse -= rows.mT @ moved
        self.weight[:, index] = 0
        self.inverse[index] = 0
        self.inverse[:, index] = 0


def by_width(columns: Tensor) -> list[tuple[int, Tensor]]:
    """(how many columns, which channels have so many)."""
    widths = (columns >= 0).sum(1)
    return [(int(w), (widths == w).nonzero().flatten()) for w in widths.unique() if int(w)]


def removal_order(
    readers: Sequence[Surgeon], channels: int, count: int, *, rounds: int = 24
) -> tuple[Tensor, Tensor]:
    """The channels to remove, greedily, and the cost ε of each when it went; the readers are left without
    them.

    Cheapest first, a few at a time where there are many: then costs are taken anew.
    """
    alive = torch.ones(channels, dtype=torch.bool)
    order: list[Tensor] = []
    paid: list[Tensor] = []
    together = max(1, -(-count // rounds))
    left = count
    while left > 0:
        known = alive.nonzero().flatten()
        total = sum(
            (reader.costs(known).cpu().double() for reader in readers), torch.zeros(len(known)).double()
        )
        cheapest = total.argsort(stable=True)[: min(together, left)]
        for reader in readers:
            reader.remove(known[cheapest])
        order.append(known[cheapest])
        paid.append(total[cheapest])
        alive[known[cheapest]] = False
        left -= len(cheapest)
    none = torch.zeros(0)
    return torch.cat(order) if order else none.long(), torch.cat(paid) if paid else none.double()
