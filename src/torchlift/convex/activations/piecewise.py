"""Activations with piecewise quadratic potentials: every penalty is a sum of squares and products ≥ 0."""

import abc
import dataclasses
import math

import torch
from torch import Tensor

from torchlift.convex.activations.base import Activation, Scalar


def infinite_unless(value: Tensor, condition: Tensor) -> Tensor:
    """Value where the condition holds, +inf elsewhere."""
    return torch.where(condition, value, math.inf)


class Nonexpansive(Activation):
    """ℓ = 1: σ is the proximal map of a convex function, with that and no better constant."""

    @property
    def lipschitz(self) -> float:
        """1."""
        return 1.0


@dataclasses.dataclass(frozen=True)
class Linear(Nonexpansive):
    """σ(v) = v, f(u) = u²/2; its penalty ½(u − v)² is the squared loss."""

    def __call__(self, v: Tensor) -> Tensor:
        """σ(v)."""
        return v

    def potential(self, u: Tensor) -> Tensor:
        """u²/2."""
        return u.square() / 2

    def conjugate(self, v: Tensor) -> Tensor:
        """v²/2."""
        return v.square() / 2

    def penalty(self, u: Tensor, v: Tensor) -> Tensor:
        """½(u − v)²."""
        return (u - v).square() / 2

    def grad_potential(self, u: Tensor) -> Tensor:
        """u."""
        return u

    def prox(self, w: Tensor, mu: Scalar) -> Tensor:
        """w/(1 + μ)."""
        return w / (1 + mu)

    def project(self, u: Tensor) -> Tensor:
        """Every u is feasible."""
        return u


class _Leaky(Nonexpansive):
    """σ(v) = max(v, a v), f(u) = u²/2 for u ≥ 0 and u²/(2a) below; slopes a in (0, 1]."""

    @abc.abstractmethod
    def _below(self, v: Tensor) -> Scalar:
        """a, in the shape of v's units."""

    def __call__(self, v: Tensor) -> Tensor:
        """σ(v)."""
        return torch.where(v >= 0, v, self._below(v) * v)

    def potential(self, u: Tensor) -> Tensor:
        """u²/2 or u²/(2a)."""
        return u * self.grad_potential(u) / 2

    def conjugate(self, v: Tensor) -> Tensor:
        """v²/2 or a v²/2."""
        return v * self(v) / 2

    def penalty(self, u: Tensor, v: Tensor) -> Tensor:
        """½(u − σ(v))²·(1 or 1/a) on equal signs; a sum of non-negative terms on opposite ones."""
        gap = (u - self(v)).square() / 2
        same = torch.where(u >= 0, gap, gap / self._below(u))
        return torch.where((u >= 0) == (v >= 0), same, self.potential(u) + self.conjugate(v) - u * v)

    def grad_potential(self, u: Tensor) -> Tensor:
        """u or u/a."""
        return torch.where(u >= 0, u, u / self._below(u))

    def prox(self, w: Tensor, mu: Scalar) -> Tensor:
        """w/(1 + μ) above 0, w/(1 + μ/a) below."""
        return torch.where(w >= 0, w / (1 + mu), w / (1 + mu / self._below(w)))

    def project(self, u: Tensor) -> Tensor:
        """Every u is feasible."""
        return u


@dataclasses.dataclass(frozen=True)
class LeakyReLU(_Leaky):
    """σ(v) = max(v, a v) with one slope a in (0, 1]."""

    slope: float = 0.01

    def __post_init__(self) -> None:
        if not 0 < self.slope <= 1:
            raise ValueError(f"leaky_relu: slope must lie in (0, 1], got {self.slope}; for slope 0 use relu")

    def _below(self, v: Tensor) -> Scalar:
        return self.slope


@dataclasses.dataclass(frozen=True, eq=False)
class PReLU(_Leaky):
    """The leaky ReLU with a slope in (0, 1] for every channel (dimension 1), or one for all: ``nn.PReLU``."""

    slopes: Tensor

    def __post_init__(self) -> None:
        if not bool(((self.slopes > 0) & (self.slopes <= 1)).all()):
            raise ValueError(
                f"prelu: slopes must lie in (0, 1], got {float(self.slopes.min()):g} to "
                f"{float(self.slopes.max()):g}; clamp the module's weight"
            )

    def _below(self, v: Tensor) -> Scalar:
        return self.slopes.to(v).reshape(-1, *[1] * (v.ndim - 2))

    def columns(self, index: slice | Tensor) -> "PReLU":
        """The slopes of some units."""
        return PReLU(self.slopes[index]) if len(self.slopes) > 1 else self


@dataclasses.dataclass(frozen=True)
class Clip(Nonexpansive):
    """σ(v) = min(max(v, lo), hi), f(u) = u²/2 on [lo, hi]; ReLU is lo = 0, hi = inf."""

    lo: float = 0.0
    hi: float = 1.0

    def __post_init__(self) -> None:
        if not self.lo < self.hi:
            raise ValueError(f"clip: lo must be below hi, got lo={self.lo}, hi={self.hi}")

    def __call__(self, v: Tensor) -> Tensor:
        """σ(v)."""
        return v.clamp(self.lo, self.hi)

    def _feasible(self, u: Tensor) -> Tensor:
        return (u >= self.lo) & (u <= self.hi)

    def potential(self, u: Tensor) -> Tensor:
        """u²/2 on [lo, hi]."""
        return infinite_unless(u.square() / 2, self._feasible(u))

    def conjugate(self, v: Tensor) -> Tensor:
        """c v − c²/2 with c = σ(v)."""
        c = self(v)
        return c * (v - c / 2)

    def penalty(self, u: Tensor, v: Tensor) -> Tensor:
        """½(u − c)² + (u − c)(c − v), both terms ≥ 0."""
        c = self(v)
        return infinite_unless((u - c).square() / 2 + (u - c) * (c - v), self._feasible(u))

    def grad_potential(self, u: Tensor) -> Tensor:
        """u, inside the domain."""
        return u

    def prox(self, w: Tensor, mu: Scalar) -> Tensor:
        """σ(w/(1 + μ))."""
        return self(w / (1 + mu))

    def project(self, u: Tensor) -> Tensor:
        """σ itself."""
        return self(u)

    def diagonal(self, v: Tensor) -> Tensor:
        """1 inside, 0 outside."""
        return ((v > self.lo) & (v < self.hi)).to(v.dtype)


@dataclasses.dataclass(frozen=True)
class Hardsigmoid(Activation):
    """σ(v) = clip(v/6 + ½, 0, 1) as in torch, f(u) = 3u² − 3u on [0, 1]."""

    @property
    def lipschitz(self) -> float:
        """1/6."""
        return 1 / 6

    def __call__(self, v: Tensor) -> Tensor:
        """σ(v)."""
        return (v / 6 + 0.5).clamp(0, 1)

    def _feasible(self, u: Tensor) -> Tensor:
        return (u >= 0) & (u <= 1)

    def potential(self, u: Tensor) -> Tensor:
        """3u² − 3u."""
        return infinite_unless(3 * u * (u - 1), self._feasible(u))

    def conjugate(self, v: Tensor) -> Tensor:
        """c v − 3c² + 3c with c = σ(v)."""
        c = self(v)
        return c * (v - 3 * c + 3)

    def penalty(self, u: Tensor, v: Tensor) -> Tensor:
        """3(u − c)² + (u − c)(6c − 3 − v), both terms ≥ 0."""
        c = self(v)
        outside = torch.where(v > 3, 3 - v, torch.where(v < -3, -3 - v, 0.0))  # 6c − 3 − v without rounding
        return infinite_unless(3 * (u - c).square() + (u - c) * outside, self._feasible(u))

    def grad_potential(self, u: Tensor) -> Tensor:
        """6u − 3."""
        return 6 * u - 3

    def prox(self, w: Tensor, mu: Scalar) -> Tensor:
        """clip((w + 3μ)/(1 + 6μ), 0, 1)."""
        return ((w + 3 * mu) / (1 + 6 * mu)).clamp(0, 1)

    def project(self, u: Tensor) -> Tensor:
        """Onto [0, 1]."""
        return u.clamp(0, 1)
