"""min λ‖AWᵀ + 1bᵀ − U‖² + ρ‖W‖²: one factorization of the smaller Gram matrix (Askari et al. 2018)."""

import torch
from torch import Tensor

from torchlift.convex.solvers.solved import Here, Sums


class Ridge:
    """The factorized problem min ‖AWᵀ + 1bᵀ − U‖² + ρ‖W‖², solved for as many targets U as come.

    Rows are samples; the bias is not regularized, so A and U are centered and b = ū − Wā. The Cholesky
    factor is that of A~ᵀA~ + ρ (p × p), or of A~A~ᵀ + ρ (m × m) when p > m, by the push-through identity
    A~ᵀ(A~A~ᵀ + ρ)⁻¹ = (A~ᵀA~ + ρ)⁻¹A~ᵀ. Rank-deficient problems without ρ get the solution of least norm.
    """

    def __init__(self, a: Tensor, rho: float, *, bias: bool = True, shard: Sums | None = None) -> None:
        if rho < 0:
            raise ValueError(f"ridge: the weight rho must not be negative, got {rho}")
        self.shard = shard or Here()
        self.bias, self.rho = bias, rho
        self.mean = self._average(a) if bias else a.new_zeros(a.shape[1])
        self.centered = a - self.mean if bias else a
        self.wide = a.shape[1] > a.shape[0] and self.shard.processes == 1
        self.factor = self._factorize()

    def _average(self, rows: Tensor) -> Tensor:
        total = self.shard.sum(torch.cat([rows.sum(0), rows.new_full((1,), len(rows))]))
        return total[:-1] / total[-1]

    def _factorize(self) -> Tensor | None:
        """The Cholesky factor, or None where the Gram matrix is numerically singular."""
        a = self.centered
        gram = a @ a.mT if self.wide else self.shard.sum(a.mT @ a)
        gram.diagonal().add_(self.rho)
        scale = gram.diagonal().clone()
        factor, info = torch.linalg.cholesky_ex(gram)
        pivots = factor.diagonal().square() / scale.clamp(min=torch.finfo(a.dtype).tiny)
        if int(info) == 0 and bool(pivots.min() > 10 * len(gram) * torch.finfo(a.dtype).eps):
            return factor
        if self.shard.processes > 1:
            raise ValueError("ridge: the Gram matrix is singular; sharded over processes it needs rho > 0")
        return None

    def solve(self, target: Tensor) -> tuple[Tensor, Tensor]:
        """W (out × in) and b (out) for the targets U (m × out)."""
        mean = self._average(target) if self.bias else target.new_zeros(target.shape[1])
        u = target - mean if self.bias else target
        if self.factor is None:
            weight = self._least_norm(u)
        elif self.wide:
            weight = torch.cholesky_solve(u, self.factor).mT @ self.centered
        else:
            weight = torch.cholesky_solve(self.shard.sum(self.centered.mT @ u), self.factor).mT
        return weight, mean - weight @ self.mean

    def _least_norm(self, u: Tensor) -> Tensor:
        left, values, right = torch.linalg.svd(self.centered, full_matrices=False)
        cut = max(self.centered.shape) * torch.finfo(u.dtype).eps * values.max()
        inverse = torch.where(values > cut, values / (values.square() + self.rho), 0.0)
        return u.mT @ (left * inverse) @ right


def ridge(
    A: Tensor, U: Tensor, lam: float, rho: float, *, shard: Sums | None = None
) -> tuple[Tensor, Tensor]:
    """argmin over W, b of λ‖AWᵀ + 1bᵀ − U‖² + ρ‖W‖²; samples are rows, the bias is free."""
    if not (bool(torch.isfinite(A).all()) and bool(torch.isfinite(U).all())):
        raise ValueError("ridge: A or U holds NaN or infinite values")
    if lam <= 0:
        raise ValueError(f"ridge: the weight lam must be positive, got {lam}")
    return Ridge(A, rho / lam, shard=shard).solve(U)
