"""The best weights of a layer for what reaches it now: a ridge problem about the weights it had.

W* = arg min ‖Y − X̂Wᵀ‖² + λ d ‖W − W₀‖²,   d = mean diag G:    H W*ᵀ = T + λ d W₀ᵀ,   H = G + λ d I
"""

import dataclasses

import torch
from torch import Tensor

from torchlift.compress.moments import LayerMoments

DAMPING = 0.01

PIECE = 2**18
"""Entries of W whose error is summed together."""


@dataclasses.dataclass(frozen=True, eq=False)
class LeastSquares:
    """‖Y − X̂Wᵀ‖² + λ d ‖W − W₀‖² of W (groups, r, n) = tr(W H Wᵀ) − 2 tr(W T) + constant."""

    hessian: Tensor
    """(groups, n, n)"""
    linear: Tensor
    """(groups, n, r): T + λ d W₀ᵀ"""
    energy: Tensor
    """(groups, r): Σ y² about what the bias takes up: the error of W = 0"""
    pull: Tensor
    """(groups,): λ d"""
    target: Tensor
    whole: Tensor
    """(groups, r): the energy of what the original layer gave, which errors are relative to"""

    @classmethod
    def of(
        cls, moments: LayerMoments, prior: Tensor, *, bias: bool, damping: float = DAMPING
    ) -> "LeastSquares":
        """From moments and the weights W₀ (groups, r, n); H takes the place of their G."""
        rounding = torch.finfo(moments.xx.dtype).eps ** 0.5 * mean_diagonal(moments.xx)
        hessian, target, energy = moments.centered(bias)
        pull = torch.maximum(damping * mean_diagonal(hessian), rounding)  # constant inputs leave rounding
        pull = torch.where(pull > torch.finfo(torch.float32).tiny, pull, 1.0)  # inputs that are zero
        hessian.diagonal(dim1=1, dim2=2).add_(pull[:, None])
        moments.xx = moments.xx.new_zeros(len(moments.xx), 0, 0)
        linear = target + pull[:, None, None] * prior.mT.to(target)
        return cls(hessian, linear, energy, pull, target, energy)

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
        rows = max(1, PIECE // weight.shape[-1])
        pieces = zip(weight.split(rows, 1), self.target.split(rows, 2), strict=True)
        return (torch.cat([self.fit(w.to(self.hessian), t) for w, t in pieces], 1) + self.energy).clamp(min=0)

    def fit(self, weight: Tensor, target: Tensor) -> Tensor:
        """‖X̂Wᵀ‖² − 2 tr(W T) of some rows: (groups, rows)."""
        moved = (weight @ self.hessian * weight).sum(-1) - self.pull[:, None] * weight.square().sum(-1)
        return moved - 2 * (weight * target.mT).sum(-1)

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
