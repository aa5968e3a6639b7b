"""Special functions and roots that torch lacks, elementwise and batched."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

_SERIES = 60  # |x| ≤ 1/2: the first term left out is below 2^-60
_ROOT_STEPS = 200


def _dilog_series(x: Tensor) -> Tensor:
    total = torch.zeros_like(x)
    for k in range(_SERIES, 0, -1):
        total = (total + 1.0 / k**2) * x
    return total


def dilog(x: Tensor) -> Tensor:
    """Li₂(x) = Σ xᵏ/k² for x ≤ 1, by reflection above 1/2 and by inversion or Landen below −1/2."""
    reflected = x > 0.5
    inverted = x < -1
    landen = (x < -0.5) & ~inverted
    small = torch.where(reflected, 1 - x, torch.where(inverted, 1 / x.clamp(max=-1), x))
    landen_point = small / (small - 1)  # [-1, 0) -> (0, 1/2]
    use_landen = landen | (inverted & (small < -0.5))
    base = _dilog_series(torch.where(use_landen, landen_point, small))
    base = torch.where(use_landen, -base - torch.log1p(-small).square() / 2, base)
    mirrored = math.pi**2 / 6 - torch.special.xlogy(torch.log(x.clamp(min=0.5)), 1 - x) - base
    flipped = -(math.pi**2) / 6 - torch.log(-x.clamp(max=-1)).square() / 2 - base
    return torch.where(reflected, mirrored, torch.where(inverted, flipped, base))


def wright_omega(z: Tensor) -> Tensor:
    """ω > 0 with ω + log ω = z, by Newton on log ω (monotone: the map is convex and increasing)."""
    log_omega = torch.where(z > 1, torch.log(z.clamp(min=1)), z)  # never below the root: Newton falls onto it
    for _ in range(_ROOT_STEPS):
        omega = log_omega.exp()
        step = (omega + log_omega - z) / (omega + 1)
        log_omega = log_omega - step
        if bool((step.abs() <= 4 * torch.finfo(z.dtype).eps * log_omega.abs().clamp(min=1)).all()):
            break
    return log_omega.exp()


def increasing_root(
    function: Callable[[Tensor], tuple[Tensor, Tensor]],
    low: Tensor,
    high: Tensor,
    start: Tensor,
    rounding: Tensor,
) -> Tensor:
    """The root of an increasing function on [low, high]: Newton, and bisection wherever Newton leaves.

    ``function`` returns value and slope; values within ``rounding`` (in units of eps) count as zero.
    """
    x = torch.minimum(torch.maximum(start, low), high)
    eps = torch.finfo(x.dtype).eps
    for _ in range(_ROOT_STEPS):
        value, slope = function(x)
        low, high = torch.where(value <= 0, x, low), torch.where(value >= 0, x, high)
        newton = x - value / slope
        inside = (newton >= low) & (newton <= high)
        following = torch.where(inside, newton, (low + high) / 2)
        close = value.abs() <= eps * rounding
        done = close | ((following - x).abs() <= 2 * eps * x.abs().clamp(min=1))
        x = torch.where(close, x, following)
        if bool(done.all()):
            break
    return x
