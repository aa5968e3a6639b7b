"""Matrix uncertainty (El Ghaoui & Lebret 1997) and learned slopes: extensions Askari et al. 2018 name."""

from collections.abc import Callable

import torch
from torch import Tensor

from torchlift.methods.lifted.shard import Alone, Shard

_STEPS = 200


def robust_weights(a: Tensor, u: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """argmin over W, b of max over ‖Δ‖_F ≤ radius of ‖(A + Δ)Wᵀ + 1bᵀ − U‖_F.

    The inner maximum is ‖AWᵀ + 1bᵀ − U‖ + radius·‖W‖, so W is the ridge solution whose weight satisfies
    ρ = radius·‖residual‖/‖W‖: a root in one variable, found by bisection on log ρ with one SVD.
    """
    if radius <= 0:
        raise ValueError(f"robust_weights: the radius must be positive, got {radius}")
    mean_a, mean_u = a.mean(0), u.mean(0)
    left, values, right = torch.linalg.svd(a - mean_a, full_matrices=False)
    target = u - mean_u
    inner = left.mT @ target
    outside = (target.square().sum() - inner.square().sum()).clamp(min=0)

    def solution(rho: Tensor) -> tuple[Tensor, Tensor]:
        coefficients = (values / (values.square() + rho))[:, None] * inner
        residual = ((rho / (values.square() + rho))[:, None] * inner).square().sum() + outside
        return coefficients, radius * residual.sqrt() - rho * coefficients.norm()

    tiny = torch.finfo(a.dtype).eps * values.max().square()
    low, high = tiny.log(), (1e12 * values.max().square()).log()
    if float(solution(high.exp())[1]) > 0:
        return torch.zeros(u.shape[1], a.shape[1], dtype=a.dtype, device=a.device), mean_u
    for _ in range(_STEPS):
        middle = (low + high) / 2
        above = solution(middle.exp())[1] > 0
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    weight = (right.mT @ solution(high.exp())[0]).mT
    return weight, mean_u - weight @ mean_a


def golden_section(function: Callable[[float], float], low: float, high: float, steps: int = 30) -> float:
    """The minimizer of a function with one minimum in [low, high], to 0.618^steps of the interval."""
    ratio = (5**0.5 - 1) / 2
    a, b = high - ratio * (high - low), low + ratio * (high - low)
    at_a, at_b = function(a), function(b)
    for _ in range(steps):
        if at_a <= at_b:
            high, b, at_b = b, a, at_a
            a = high - ratio * (high - low)
            at_a = function(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + ratio * (high - low)
            at_b = function(b)
    return (low + high) / 2


def leaky_slope(u: Tensor, v: Tensor, least: float = 1e-3, *, shard: Shard | None = None) -> float:
    """argmin over a in [least, 1] of Σ B(u, v) for the leaky ReLU of slope a: √(Σ min(u,0)² / Σ min(v,0)²).

    The slope enters the penalty as Σ min(u,0)²/(2a) + a Σ min(v,0)²/2.
    """
    sums = torch.stack([u.clamp(max=0).square().sum(), v.clamp(max=0).square().sum()])
    below, beside = (shard or Alone()).sum(sums)
    if float(beside) == 0:
        return 1.0
    return min(max(float((below / beside).sqrt()), least), 1.0)


def leaky_slopes(
    u: Tensor, v: Tensor, like: Tensor, least: float = 1e-3, *, shard: Shard | None = None
) -> Tensor:
    """The best slope of every channel (dimension 1), or one for all if ``like`` has one entry."""
    over = [d for d in range(u.ndim) if d != 1 or len(like) == 1]
    sums = torch.stack([u.clamp(max=0).square().sum(over), v.clamp(max=0).square().sum(over)])
    below, beside = (shard or Alone()).sum(sums)
    return (below / beside).sqrt().nan_to_num(1.0, 1.0).clamp(least, 1.0).reshape(like.shape).to(like)
