"""Three-splitting blocks: pre-activations as variables too (Taylor et al. 2016)."""

import torch
from torch import Tensor


def relu_preactivation(u: Tensor, m: Tensor, gamma: float, beta: float) -> Tensor:
    """argmin over v of γ(u − v₊)² + β(v − m)², globally: the better of the two candidates per sign."""
    right = ((gamma * u + beta * m) / (gamma + beta)).clamp(min=0)
    left = m.clamp(max=0)

    def cost(v: Tensor) -> Tensor:
        return gamma * (u - v.clamp(min=0)).square() + beta * (v - m).square()

    return torch.where(cost(right) <= cost(left), right, left)


def activation_step(
    weight: Tensor, bias: Tensor, v_next: Tensor, target: Tensor, gamma: float, beta: float
) -> Tensor:
    """argmin over u of γ‖u − σ(v)‖² + β‖v₊ − Wu − b‖², ``target`` = σ(v): one ridge solve for all rows."""
    gram = beta * weight.mT @ weight
    gram.diagonal().add_(gamma)
    right = gamma * target + beta * (v_next - bias) @ weight
    return torch.cholesky_solve(right.mT, torch.linalg.cholesky(gram)).mT
