"""Max-pooling as an argmin: z + β Σ (xᵢ − z)₊, jointly convex, for β > 1.

With β = 1, as printed in Askari et al. 2018, every z between the two largest entries is a minimizer.
"""

import torch
from torch import Tensor


def max_divergence(x: Tensor, z: Tensor, beta: float = 2.0) -> Tensor:
    """z + β Σᵢ (xᵢ − z)₊ over the last dimension of x, whose only minimizer in z is maxᵢ xᵢ."""
    if beta <= 1:
        raise ValueError(
            f"max_divergence: beta must exceed 1 for max(x) to be the only minimizer, got {beta}"
        )
    return z + beta * (x - z.unsqueeze(-1)).clamp(min=0).sum(-1)


def max_divergence_gradient(x: Tensor, z: Tensor, beta: float = 2.0) -> tuple[Tensor, Tensor]:
    """One subgradient in (x, z)."""
    above = (x > z.unsqueeze(-1)).to(x.dtype)
    return beta * above, torch.ones_like(z) - beta * above.sum(-1)
