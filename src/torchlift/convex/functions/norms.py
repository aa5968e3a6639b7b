"""Norms and boxes: functions whose proximal maps are one line."""

import dataclasses
import math

import torch
from torch import Tensor

from torchlift.convex.functions.base import ConvexError, Function, Weight, check_weight, samples


@dataclasses.dataclass(frozen=True)
class Zero(Function):
    """f = 0."""

    def fn(self, x: Tensor) -> Tensor:
        """0."""
        return x.new_zeros(len(x))

    def prox(self, x: Tensor, gamma: Weight = 1.0) -> Tensor:
        """X itself."""
        return x


@dataclasses.dataclass(frozen=True)
class L1(Function):
    """α‖x‖₁; its conjugate is 0 where |q| ≤ α."""

    alpha: float = 1.0

    def __post_init__(self) -> None:
        check_weight("L1", self.alpha)

    def fn(self, x: Tensor) -> Tensor:
        """α Σ|x|."""
        return self.alpha * samples(x).abs().sum(1)

    def prox(self, x: Tensor, gamma: Weight = 1.0) -> Tensor:
        """The soft-threshold at γα."""
        return x.sign() * (x.abs() - gamma * self.alpha).clamp(min=0)

    def conjugate(self, q: Tensor) -> Tensor:
        """0 where |q| ≤ α up to rounding, else +inf."""
        inside = samples(q).abs().amax(1) <= self.alpha * (1 + 16 * torch.finfo(q.dtype).eps)
        return torch.where(inside, 0.0, math.inf).to(q)

    def shrink_into_domain(self, q: Tensor) -> Tensor:
        """α/max|q|."""
        return (self.alpha / samples(q).abs().amax(1).clamp(min=1e-300)).clamp(max=1)


@dataclasses.dataclass(frozen=True)
class L2(Function):
    """α/2 ‖x‖², whose conjugate is ‖q‖²/2α (Tikhonov)."""

    alpha: float = 1.0

    def __post_init__(self) -> None:
        check_weight("L2", self.alpha)

    def fn(self, x: Tensor) -> Tensor:
        """α/2 Σx²."""
        return self.alpha / 2 * samples(x).square().sum(1)

    def prox(self, x: Tensor, gamma: Weight = 1.0) -> Tensor:
        """x/(1 + γα)."""
        return x / (1 + gamma * self.alpha)

    def conjugate(self, q: Tensor) -> Tensor:
        """‖q‖²/2α."""
        return samples(q).square().sum(1) / (2 * self.alpha)

    def shrink_into_domain(self, q: Tensor) -> Tensor:
        """1: the conjugate is finite everywhere."""
        return q.new_ones(len(q))


@dataclasses.dataclass(frozen=True)
class Box(Function):
    """0 for lo ≤ x ≤ hi, else +inf."""

    lo: float = 0.0
    hi: float = 1.0

    def __post_init__(self) -> None:
        if not self.lo < self.hi:
            raise ConvexError(f"Box: lo must be below hi, got lo={self.lo}, hi={self.hi}")

    def fn(self, x: Tensor) -> Tensor:
        """0 or +inf."""
        inside = ((samples(x) >= self.lo) & (samples(x) <= self.hi)).all(1)
        return torch.where(inside, 0.0, math.inf).to(x)

    def prox(self, x: Tensor, gamma: Weight = 1.0) -> Tensor:
        """The nearest point of the box."""
        return x.clamp(self.lo, self.hi)

    def conjugate(self, q: Tensor) -> Tensor:
        """Σ max(q·lo, q·hi)."""
        q = samples(q)
        low = torch.where(q < 0, q * self.lo, 0.0)
        return (torch.where(q > 0, q * self.hi, 0.0) + low).sum(1)

    @property
    def bounded(self) -> bool:
        """Whether both ends are finite, so that the conjugate is finite everywhere."""
        return math.isfinite(self.lo) and math.isfinite(self.hi)


@dataclasses.dataclass(frozen=True)
class Boxed(Function):
    """f + Box for f that is a sum over entries (L1, L2): prox, then clamp."""

    inner: L1 | L2
    box: Box

    @property
    def alpha(self) -> float:
        """That of the inner function."""
        return self.inner.alpha

    def fn(self, x: Tensor) -> Tensor:
        """f(x) inside the box."""
        return self.inner.fn(x) + self.box.fn(x)

    def prox(self, x: Tensor, gamma: Weight = 1.0) -> Tensor:
        """clamp(prox)."""
        return self.box.prox(self.inner.prox(x, gamma))

    def conjugate(self, q: Tensor) -> Tensor:
        """Σ max over x in the box of qx − f(x), at x = clamp(argmax)."""
        alpha = self.inner.alpha
        if isinstance(self.inner, L2):
            x = (q / alpha).clamp(self.box.lo, self.box.hi)
            return samples(q * x - alpha / 2 * x.square()).sum(1)
        ends = torch.stack([samples(_at(q, alpha, end)) for end in (self.box.lo, self.box.hi)])
        zero = self.box.lo <= 0 <= self.box.hi
        best = ends.amax(0).clamp(min=0) if zero else ends.amax(0)
        return best.sum(1)

    def shrink_into_domain(self, q: Tensor) -> Tensor:
        """1 if the box is bounded or f is quadratic; else as far as the open sides allow."""
        if self.box.bounded or isinstance(self.inner, L2):
            return q.new_ones(len(q))
        above = samples(q).amax(1) if math.isinf(self.box.hi) else q.new_zeros(len(q))
        below = (-samples(q)).amax(1) if math.isinf(self.box.lo) else q.new_zeros(len(q))
        reach = torch.maximum(above, below).clamp(min=1e-300)
        return (self.inner.alpha / reach).clamp(max=1)


def _at(q: Tensor, alpha: float, end: float) -> Tensor:
    """Q·end − α|end|; at an infinite end 0 or +inf."""
    if math.isfinite(end):
        return q * end - alpha * abs(end)
    slope = (q if end > 0 else -q) - alpha
    return torch.where(slope <= 16 * torch.finfo(q.dtype).eps * alpha, 0.0, math.inf).to(q)


@dataclasses.dataclass(frozen=True)
class GroupL1(Function):
    """α Σ ‖x_g‖₂, a group being what lies along ``dims``; no dims: α‖x‖₁. Samples are dimension 0."""

    alpha: float = 1.0
    dims: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_weight("GroupL1", self.alpha)

    def _lengths(self, x: Tensor) -> Tensor:
        if not self.dims:
            return x.abs()
        if x.requires_grad:  # its gradient at 0 is 0, where that of the root would be NaN
            return torch.linalg.vector_norm(x, dim=self.dims, keepdim=True)
        return x.square().sum(self.dims, keepdim=True).sqrt()

    def fn(self, x: Tensor) -> Tensor:
        """α Σ ‖x_g‖."""
        return self.alpha * samples(self._lengths(x)).sum(1)

    def prox(self, x: Tensor, gamma: Weight = 1.0) -> Tensor:
        """Every group's length lowered by γα."""
        length = self._lengths(x).clamp(min=torch.finfo(x.dtype).tiny)
        return x * (1 - gamma * self.alpha / length).clamp(min=0)

    def prox_conjugate(self, q: Tensor, step: float) -> Tensor:
        """Every group into the ball of radius α."""
        return q * (self.alpha / self._lengths(q).clamp(min=self.alpha))

    def conjugate(self, q: Tensor) -> Tensor:
        """0 where all ‖q_g‖ ≤ α up to rounding, else +inf."""
        inside = samples(self._lengths(q)).amax(1) <= self.alpha * (1 + 16 * torch.finfo(q.dtype).eps)
        return torch.where(inside, 0.0, math.inf).to(q)

    def shrink_into_domain(self, q: Tensor) -> Tensor:
        """α/max‖q_g‖."""
        return (self.alpha / samples(self._lengths(q)).amax(1).clamp(min=1e-300)).clamp(max=1)
