"""Forward differences, zero at the border: (D x)ᵢ = xᵢ₊₁ − xᵢ along the last dimensions."""

import dataclasses
import math

import torch
from torch import Tensor

from torchlift.convex.operators.base import Operator


@dataclasses.dataclass(frozen=True)
class Differences(Operator):
    """D stacks the differences along the last ``dims`` dimensions behind the samples: (n, dims, …).

    ‖D‖² < 4·dims (Chambolle 2004). DᵀD is the Laplacian with reflecting borders, diagonal in cosines.
    """

    dims: int = 2

    def __post_init__(self) -> None:
        if self.dims not in (1, 2):
            raise ValueError(f"Differences: dims must be 1 or 2, got {self.dims}")

    def A(self, x: Tensor) -> Tensor:
        """The forward differences, one slice per direction."""
        out = x.new_zeros(len(x), self.dims, *x.shape[1:])
        for k, dim in enumerate(range(-self.dims, 0)):
            size = x.shape[dim]
            out[:, k].narrow(dim, 0, size - 1).copy_(x.narrow(dim, 1, size - 1) - x.narrow(dim, 0, size - 1))
        return out

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Minus the divergence."""
        x = torch.zeros_like(y[:, 0])
        for k, dim in enumerate(range(-self.dims, 0)):
            size = y[:, k].shape[dim]
            inner = y[:, k].narrow(dim, 0, size - 1)
            x.narrow(dim, 0, size - 1).sub_(inner)
            x.narrow(dim, 1, size - 1).add_(inner)
        return x

    def norm(self, like: Tensor) -> float:
        """2 √(Σ cos²(π/2n)): the largest eigenvalue of the Laplacian is known."""
        return 2 * math.sqrt(
            sum(math.cos(math.pi / (2 * like.shape[dim])) ** 2 for dim in range(-self.dims, 0))
        )

    def solve(self, r: Tensor) -> Tensor:
        """(DᵀD)⁺ r, by cosine transforms; constants, which D does not see, are left out."""
        bases = [_cosines(r.shape[dim], r) for dim in range(-self.dims, 0)]
        values = sum_outer([basis[1] for basis in bases])
        for k, dim in enumerate(range(-self.dims, 0)):
            r = _along(bases[k][0], r, dim)
        r = torch.where(values > 0, r / torch.where(values > 0, values, 1.0), 0.0)
        for k, dim in enumerate(range(-self.dims, 0)):
            r = _along(bases[k][0].mT, r, dim)
        return r


def sum_outer(rows: list[Tensor]) -> Tensor:
    """λᵢ + λⱼ as a grid, or the one row there is."""
    return rows[0] if len(rows) == 1 else rows[0][:, None] + rows[1][None, :]


def _cosines(size: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """The orthonormal cosine basis (rows) and the eigenvalues 4 sin²(πk/2n) of the 1-D Laplacian."""
    k = torch.arange(size, dtype=torch.float64, device=like.device)
    basis = torch.cos(torch.pi * k[:, None] * (k[None, :] + 0.5) / size) * math.sqrt(2 / size)
    basis[0] /= math.sqrt(2)
    values = 4 * torch.sin(torch.pi * k / (2 * size)).square()
    return basis.to(like), values.to(like)


def _along(matrix: Tensor, x: Tensor, dim: int) -> Tensor:
    return x @ matrix.mT if dim == -1 else matrix @ x
