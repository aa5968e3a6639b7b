"""Soft-thresholds: the proximal maps of t‖u‖₁, its non-negative form and t‖u‖₂, and the sign."""

import dataclasses
import math

import torch
from torch import Tensor

from torchlift.convex.activations.base import Activation, Scalar
from torchlift.convex.activations.piecewise import Nonexpansive, infinite_unless


def _check_threshold(name: str, t: float) -> None:
    if not 0 <= t < math.inf:
        raise ValueError(f"{name}: the threshold t must be finite and not negative, got {t}")


@dataclasses.dataclass(frozen=True)
class EntrywiseSoftThreshold(Nonexpansive):
    """σ(v) = sign(v)(|v| − t)₊, f(u) = u²/2 + t|u|."""

    t: float = 1.0

    def __post_init__(self) -> None:
        _check_threshold("soft_threshold", self.t)

    def __call__(self, v: Tensor) -> Tensor:
        """σ(v)."""
        return v - v.clamp(-self.t, self.t)

    def potential(self, u: Tensor) -> Tensor:
        """u²/2 + t|u|."""
        return u.square() / 2 + self.t * u.abs()

    def conjugate(self, v: Tensor) -> Tensor:
        """(|v| − t)₊²/2."""
        return self(v).square() / 2

    def penalty(self, u: Tensor, v: Tensor) -> Tensor:
        """½(u − σ(v))² + t|u| − u·clip(v, −t, t)."""
        return (u - self(v)).square() / 2 + self.t * u.abs() - u * v.clamp(-self.t, self.t)

    def grad_potential(self, u: Tensor) -> Tensor:
        """u + t sign(u)."""
        return u + self.t * u.sign()

    def prox(self, w: Tensor, mu: Scalar) -> Tensor:
        """S_{μt}(w)/(1 + μ)."""
        return w.sign() * (w.abs() - mu * self.t).clamp(min=0) / (1 + mu)

    def project(self, u: Tensor) -> Tensor:
        """Every u is feasible."""
        return u


@dataclasses.dataclass(frozen=True)
class NonnegSoftThreshold(Nonexpansive):
    """σ(v) = (v − t)₊, f(u) = u²/2 + t u on u ≥ 0."""

    t: float = 1.0

    def __post_init__(self) -> None:
        _check_threshold("nonneg_soft_threshold", self.t)

    def __call__(self, v: Tensor) -> Tensor:
        """σ(v)."""
        return (v - self.t).clamp(min=0)

    def potential(self, u: Tensor) -> Tensor:
        """u²/2 + t u."""
        return infinite_unless(u.square() / 2 + self.t * u, u >= 0)

    def conjugate(self, v: Tensor) -> Tensor:
        """(v − t)₊²/2."""
        return self(v).square() / 2

    def penalty(self, u: Tensor, v: Tensor) -> Tensor:
        """½(u − σ(v))² + u (t − v)₊."""
        return infinite_unless((u - self(v)).square() / 2 + u * (self.t - v).clamp(min=0), u >= 0)

    def grad_potential(self, u: Tensor) -> Tensor:
        """u + t."""
        return u + self.t

    def prox(self, w: Tensor, mu: Scalar) -> Tensor:
        """(w − μt)₊/(1 + μ)."""
        return (w - mu * self.t).clamp(min=0) / (1 + mu)

    def project(self, u: Tensor) -> Tensor:
        """Onto u ≥ 0."""
        return u.clamp(min=0)


@dataclasses.dataclass(frozen=True)
class GroupSoftThreshold(Nonexpansive):
    """σ(v) = v (1 − t/‖v‖)₊ on the last dimension, f(u) = ‖u‖²/2 + t‖u‖."""

    t: float = 1.0
    vector = True

    def __post_init__(self) -> None:
        _check_threshold("group_soft_threshold", self.t)

    def _ball(self, v: Tensor, radius: Scalar) -> Tensor:
        length = torch.linalg.vector_norm(v, dim=-1, keepdim=True)
        return v * (radius / length.clamp(min=torch.finfo(v.dtype).tiny)).clamp(max=1)

    def __call__(self, v: Tensor) -> Tensor:
        """σ(v)."""
        return v - self._ball(v, self.t)

    def potential(self, u: Tensor) -> Tensor:
        """‖u‖²/2 + t‖u‖."""
        return u.square().sum(-1) / 2 + self.t * torch.linalg.vector_norm(u, dim=-1)

    def conjugate(self, v: Tensor) -> Tensor:
        """(‖v‖ − t)₊²/2."""
        return self(v).square().sum(-1) / 2

    def penalty(self, u: Tensor, v: Tensor) -> Tensor:
        """½‖u − σ(v)‖² + t‖u‖ − ⟨u, v − σ(v)⟩."""
        length = torch.linalg.vector_norm(u, dim=-1)
        gap = self.t * length - (u * self._ball(v, self.t)).sum(-1)
        return (u - self(v)).square().sum(-1) / 2 + gap.clamp(min=0)

    def grad_potential(self, u: Tensor) -> Tensor:
        """u + t u/‖u‖, and 0 at 0."""
        length = torch.linalg.vector_norm(u, dim=-1, keepdim=True)
        return u + torch.where(length > 0, self.t * u / length.clamp(min=torch.finfo(u.dtype).tiny), 0.0)

    def prox(self, w: Tensor, mu: Scalar) -> Tensor:
        """The threshold μt, divided by 1 + μ."""
        return (w - self._ball(w, mu * self.t)) / (1 + mu)

    def project(self, u: Tensor) -> Tensor:
        """Every u is feasible."""
        return u


@dataclasses.dataclass(frozen=True)
class Sign(Activation):
    """σ(v) = sign(v), f = 0 on [−1, 1], B = |v| − uv: twice the perceptron loss for u = ±1.

    Not a proximal map: grad_v is only a subgradient and there is no Lipschitz constant.
    """

    @property
    def lipschitz(self) -> float:
        """+inf."""
        return math.inf

    def __call__(self, v: Tensor) -> Tensor:
        """σ(v)."""
        return v.sign()

    def potential(self, u: Tensor) -> Tensor:
        """0 on [−1, 1]."""
        return infinite_unless(torch.zeros_like(u), u.abs() <= 1)

    def conjugate(self, v: Tensor) -> Tensor:
        """|v|."""
        return v.abs()

    def penalty(self, u: Tensor, v: Tensor) -> Tensor:
        """|v| − uv."""
        return infinite_unless(v.abs() * (1 - u * v.sign()), u.abs() <= 1)

    def grad_potential(self, u: Tensor) -> Tensor:
        """0."""
        return torch.zeros_like(u)

    def prox(self, w: Tensor, mu: Scalar) -> Tensor:
        """Onto [−1, 1], for every μ."""
        return w.clamp(-1, 1)

    def project(self, u: Tensor) -> Tensor:
        """Onto [−1, 1]."""
        return u.clamp(-1, 1)
