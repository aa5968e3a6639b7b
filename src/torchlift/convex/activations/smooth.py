"""Sigmoid, tanh, softplus and ELU: smooth potentials whose scaled prox is a scalar root."""

import dataclasses
import math

import torch
from torch import Tensor
from torch.special import xlogy

from torchlift.convex.activations.base import Activation, Scalar
from torchlift.convex.activations.piecewise import infinite_unless
from torchlift.convex.activations.scalar import dilog, increasing_root


def softplus(v: Tensor) -> Tensor:
    """log(1 + e^v) to full precision (torch's own turns linear at 20, off by 2e-9)."""
    return torch.logaddexp(v, torch.zeros_like(v))


def _two_point_kl(p: Tensor, q: Tensor, v: Tensor) -> Tensor:
    """KL of the two-point law (p, q = 1 − p) against (sigmoid(v), sigmoid(−v))."""
    return (xlogy(p, p) + xlogy(q, q) + p * softplus(-v) + q * softplus(v)).clamp(min=0)


def _match(w: Tensor, mu: Scalar) -> tuple[Tensor, Tensor]:
    """w and μ in one shape, μ positive."""
    weight = torch.as_tensor(mu, dtype=w.dtype, device=w.device)
    if bool((weight <= 0).any()):
        raise ValueError(f"prox: the weight mu must be positive, got {float(weight.min()):g}")
    w, weight = torch.broadcast_tensors(w, weight)
    return w, weight


@dataclasses.dataclass(frozen=True)
class Sigmoid(Activation):
    """σ(v) = 1/(1 + e^−v), f(u) = u log u + (1 − u) log(1 − u); B = KL(Bern(u) ‖ Bern(σ(v)))."""

    @property
    def lipschitz(self) -> float:
        """1/4."""
        return 0.25

    def __call__(self, v: Tensor) -> Tensor:
        """σ(v)."""
        return torch.sigmoid(v)

    def _feasible(self, u: Tensor) -> Tensor:
        return (u >= 0) & (u <= 1)

    def potential(self, u: Tensor) -> Tensor:
        """u log u + (1 − u) log(1 − u)."""
        p = u.clamp(0, 1)
        return infinite_unless(xlogy(p, p) + xlogy(1 - p, 1 - p), self._feasible(u))

    def conjugate(self, v: Tensor) -> Tensor:
        """log(1 + e^v)."""
        return softplus(v)

    def penalty(self, u: Tensor, v: Tensor) -> Tensor:
        """KL(Bern(u) ‖ Bern(σ(v)))."""
        p = u.clamp(0, 1)
        return infinite_unless(_two_point_kl(p, 1 - p, v), self._feasible(u))

    def grad_potential(self, u: Tensor) -> Tensor:
        """logit(u)."""
        return torch.logit(u)

    def prox(self, w: Tensor, mu: Scalar) -> Tensor:
        """σ(s) with σ(s) + μs = w."""
        w, mu = _match(w, mu)

        def balance(s: Tensor) -> tuple[Tensor, Tensor]:
            p = torch.sigmoid(s)
            return p + mu * s - w, p * (1 - p) + mu

        return torch.sigmoid(
            increasing_root(balance, (w - 1) / mu, w / mu, (w - 0.5) / (mu + 0.25), 2 * (w.abs() + 1))
        )

    def project(self, u: Tensor) -> Tensor:
        """Onto [0, 1]."""
        return u.clamp(0, 1)


@dataclasses.dataclass(frozen=True)
class Tanh(Activation):
    """σ(v) = tanh v, f(u) = ½[(1 + u) log(1 + u) + (1 − u) log(1 − u)], f* = log cosh."""

    @property
    def lipschitz(self) -> float:
        """1."""
        return 1.0

    def __call__(self, v: Tensor) -> Tensor:
        """σ(v)."""
        return torch.tanh(v)

    def _feasible(self, u: Tensor) -> Tensor:
        return u.abs() <= 1

    def potential(self, u: Tensor) -> Tensor:
        """½[(1 + u) log(1 + u) + (1 − u) log(1 − u)]."""
        c = u.clamp(-1, 1)
        return infinite_unless((xlogy(1 + c, 1 + c) + xlogy(1 - c, 1 - c)) / 2, self._feasible(u))

    def conjugate(self, v: Tensor) -> Tensor:
        """log cosh v = |v| + log(1 + e^{−2|v|}) − log 2."""
        return v.abs() + torch.log1p(torch.exp(-2 * v.abs())) - math.log(2)

    def penalty(self, u: Tensor, v: Tensor) -> Tensor:
        """The two-point KL of (1 + u)/2 against sigmoid(2v), an identity."""
        c = u.clamp(-1, 1)
        return infinite_unless(_two_point_kl((1 + c) / 2, (1 - c) / 2, 2 * v), self._feasible(u))

    def grad_potential(self, u: Tensor) -> Tensor:
        """artanh(u)."""
        return torch.atanh(u)

    def prox(self, w: Tensor, mu: Scalar) -> Tensor:
        """tanh(s) with tanh(s) + μs = w."""
        w, mu = _match(w, mu)

        def balance(s: Tensor) -> tuple[Tensor, Tensor]:
            u = torch.tanh(s)
            return u + mu * s - w, (1 - u.square()) + mu

        return torch.tanh(
            increasing_root(balance, (w - 1) / mu, (w + 1) / mu, w / (mu + 1), 2 * (w.abs() + 1))
        )

    def project(self, u: Tensor) -> Tensor:
        """Onto [−1, 1]."""
        return u.clamp(-1, 1)


@dataclasses.dataclass(frozen=True)
class Softplus(Activation):
    """σ(v) = log(1 + e^v), f(u) = u²/2 + Li₂(e^−u) − π²/6 on u ≥ 0, f*(v) = −Li₂(−e^v)."""

    @property
    def lipschitz(self) -> float:
        """1."""
        return 1.0

    def __call__(self, v: Tensor) -> Tensor:
        """σ(v)."""
        return softplus(v)

    def _excess(self, u: Tensor) -> Tensor:
        """Li₂(e^−u) − π²/6 = u log(1 − e^−u) − Li₂(1 − e^−u): exact for small u."""
        gap = -torch.expm1(-u)
        return xlogy(u, gap) - dilog(gap)

    def potential(self, u: Tensor) -> Tensor:
        """u²/2 + Li₂(e^−u) − π²/6."""
        c = u.clamp(min=0)
        return infinite_unless(c.square() / 2 + self._excess(c), u >= 0)

    def conjugate(self, v: Tensor) -> Tensor:
        """−Li₂(−e^v), through v²/2 + π²/6 + Li₂(−e^−v) for v > 0."""
        tail = dilog(-torch.exp(-v.abs()))
        return torch.where(v > 0, v.square() / 2 + math.pi**2 / 6 + tail, -tail)

    def penalty(self, u: Tensor, v: Tensor) -> Tensor:
        """f + f* − uv, with the squares completed first for v > 0."""
        c = u.clamp(min=0)
        tail = dilog(-torch.exp(-v.abs()))
        right = (c - v).square() / 2 + dilog(torch.exp(-c)) + tail
        left = c * (c / 2 - v) + self._excess(c) - tail
        return infinite_unless(torch.where(v > 0, right, left).clamp(min=0), u >= 0)

    def grad_potential(self, u: Tensor) -> Tensor:
        """log(e^u − 1) = u + log(1 − e^−u)."""
        return u + torch.log(-torch.expm1(-u))

    def prox(self, w: Tensor, mu: Scalar) -> Tensor:
        """softplus(s) with softplus(s) + μs = w."""
        w, mu = _match(w, mu)

        def balance(s: Tensor) -> tuple[Tensor, Tensor]:
            return softplus(s) + mu * s - w, torch.sigmoid(s) + mu

        below, above = w - math.log(2), w
        low = torch.where(below > 0, below / (1 + mu), below / mu)
        high = torch.where(above > 0, above / (1 + mu), above / mu)
        return softplus(increasing_root(balance, low, high, w / (1 + mu), 2 * (w.abs() + 1)))

    def project(self, u: Tensor) -> Tensor:
        """Onto u ≥ 0."""
        return u.clamp(min=0)


@dataclasses.dataclass(frozen=True)
class ELU(Activation):
    """σ(v) = v for v ≥ 0, α(e^v − 1) below; f(u) = u²/2 for u ≥ 0, (u + α) log(1 + u/α) − u on [−α, 0]."""

    alpha: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.alpha < math.inf:
            raise ValueError(f"elu: alpha must be a positive number, got {self.alpha}")

    @property
    def lipschitz(self) -> float:
        """max(1, α)."""
        return max(1.0, self.alpha)

    def __call__(self, v: Tensor) -> Tensor:
        """σ(v)."""
        return torch.where(v >= 0, v, self.alpha * torch.expm1(v.clamp(max=0)))

    def potential(self, u: Tensor) -> Tensor:
        """f(u)."""
        c = u.clamp(-self.alpha, 0)
        left = xlogy(c + self.alpha, 1 + c / self.alpha) - c
        return infinite_unless(torch.where(u >= 0, u.square() / 2, left), u >= -self.alpha)

    def conjugate(self, v: Tensor) -> Tensor:
        """v²/2 for v ≥ 0, α(e^v − v − 1) below."""
        low = v.clamp(max=0)
        return torch.where(v >= 0, v.square() / 2, self.alpha * (torch.expm1(low) - low))

    def penalty(self, u: Tensor, v: Tensor) -> Tensor:
        """Squares where both are positive, α(e^v − e^s(1 + v − s)) with s = σ⁻¹(u) where neither is."""
        low, kept = u.clamp(-self.alpha, 0), v.clamp(max=0)
        both = self.alpha * torch.exp(kept) - (low + self.alpha) * (1 + kept)
        both = both + xlogy(low + self.alpha, 1 + low / self.alpha)
        crossed = self.potential(u.clamp(min=-self.alpha)) + self.conjugate(v) - u * v
        same = torch.where(u >= 0, (u - v).square() / 2, both)
        return infinite_unless(
            torch.where((u >= 0) == (v >= 0), same, crossed).clamp(min=0), u >= -self.alpha
        )

    def grad_potential(self, u: Tensor) -> Tensor:
        """u for u ≥ 0, log(1 + u/α) below."""
        return torch.where(u >= 0, u, torch.log1p(u.clamp(max=0) / self.alpha))

    def prox(self, w: Tensor, mu: Scalar) -> Tensor:
        """w/(1 + μ) for w ≥ 0, else σ(s) with α(e^s − 1) + μs = w."""
        w, mu = _match(w, mu)
        low = w.clamp(max=0)

        def balance(s: Tensor) -> tuple[Tensor, Tensor]:
            return self.alpha * torch.expm1(s) + mu * s - low, self.alpha * torch.exp(s) + mu

        root = increasing_root(
            balance, low / mu, torch.zeros_like(w), low / (mu + self.alpha), 2 * (w.abs() + 1)
        )
        return torch.where(w >= 0, w / (1 + mu), self(root))

    def project(self, u: Tensor) -> Tensor:
        """Onto u ≥ −α."""
        return u.clamp(min=-self.alpha)
