"""The best weights of a layer for what reaches it now: a ridge problem about the weights it had.

W* = arg min ‖Y − X̂Wᵀ‖² + λ d ‖W − W₀‖²,   d = mean diag G:    H W*ᵀ = T + λ d W₀ᵀ,   H = G + λ d I
"""

import dataclasses

import torch
from torch import Tensor

from torchlift.compress.moments import LayerMoments

DAMPING = 0.01


@dataclasses.dataclass(frozen=True, eq=False)
class LeastSquares:
    """‖Y − X̂Wᵀ‖² + λ d ‖W − W₀‖² of W (groups, r, n) = tr(W H Wᵀ) − 2 tr(W T) + constant."""

    hessian: Tensor
    """(groups, n, n)"""
    linear: Tensor
    """(groups, n, r): T + λ d W₀ᵀ"""
    energy: Tensor
    """(groups, r): Σ y² about what the bias takes up: the error of W = 0"""
    gram: Tensor
    target: Tensor
    whole: Tensor
    """(groups, r): the energy of what the original layer gave, which errors are relative to"""

    @classmethod
    def of(
        cls, moments: LayerMoments, prior: Tensor, *, bias: bool, damping: float = DAMPING
    ) -> "LeastSquares":
        """From moments and the weights W₀ (groups, r, n)."""
        gram, target, energy = moments.centered(bias)
        rounding = torch.finfo(gram.dtype).eps ** 0.5 * mean_diagonal(moments.xx)
        pull = torch.maximum(damping * mean_diagonal(gram), rounding)  # constant inputs leave rounding in G
        pull = torch.where(pull > torch.finfo(torch.float32).tiny, pull, 1.0)  # inputs that are zero
        hessian = gram + pull[:, None, None] * torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
        return cls(hessian, target + pull[:, None, None] * prior.mT.to(target), energy, gram, target, energy)

    def held_to(self, moments: LayerMoments, *, bias: bool) -> "LeastSquares":
        """The same inputs, other targets."""
        target, energy = moments.centered_targets(bias)
        linear = self.linear + (target - self.target)
        return dataclasses.replace(self, linear=linear, target=target, energy=energy)

    def solve(self) -> Tensor:
        """W* (groups, r, n)."""
        return torch.cholesky_solve(self.linear, torch.linalg.cholesky(self.hessian)).mT

    def error(self, weight: Tensor) -> Tensor:
        """‖Y − X̂Wᵀ‖² of each row, (groups, r)."""
        weight = weight.to(self.gram)
        moved = (weight @ self.gram * weight).sum(-1) - 2 * (weight * self.target.mT).sum(-1)
        return (moved + self.energy).clamp(min=0)

    def relative(self, weight: Tensor) -> float:
        """‖Y − X̂Wᵀ‖² / ‖Y‖² over all rows."""
        total = float(self.whole.sum())
        return float(self.error(weight).sum()) / total if total > 0 else 0.0


def mean_diagonal(gram: Tensor) -> Tensor:
    """Of each group's matrix."""
    return gram.diagonal(dim1=1, dim2=2).mean(1)


def bias_for(moments: LayerMoments, weight: Tensor) -> Tensor:
    """b = ȳ − W x̄: (groups, r)."""
    x, y = moments.means()
    return y - (weight.to(x) @ x[..., None])[..., 0]
