"""Projection on the simplex and softmax: activations whose values are probability vectors."""

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor
from torch.special import xlogy

from torchlift.convex.activations.base import Activation, Scalar
from torchlift.convex.activations.piecewise import Nonexpansive, infinite_unless
from torchlift.convex.activations.scalar import wright_omega

_NEWTON_STEPS = 100


def project_simplex(v: Tensor) -> Tensor:
    """argmin ½‖u − v‖² over u ≥ 0, Σu = 1, on the last dimension (by sorting; Held, Wolfe & Crowder 1974)."""
    ordered = v.sort(dim=-1, descending=True).values
    count = torch.arange(1, v.shape[-1] + 1, dtype=v.dtype, device=v.device)
    level = (ordered.cumsum(-1) - 1) / count
    last = (ordered > level).to(v.dtype).cumsum(-1).argmax(-1, keepdim=True)
    return (v - level.gather(-1, last)).clamp(min=0)


def feasible(u: Tensor) -> Tensor:
    """u ≥ 0 and Σu = 1 up to rounding."""
    rounding = 4 * torch.finfo(u.dtype).eps ** 0.5
    return (u >= 0).all(-1) & ((u.sum(-1) - 1).abs() <= rounding)


@dataclasses.dataclass(frozen=True)
class Simplex(Nonexpansive):
    """σ(v) = the projection of v on the simplex, f(u) = ½‖u‖² there; B(one-hot, v) is the sparsemax loss."""

    vector = True

    def __call__(self, v: Tensor) -> Tensor:
        """σ(v)."""
        return project_simplex(v)

    def potential(self, u: Tensor) -> Tensor:
        """½‖u‖²."""
        return infinite_unless(u.square().sum(-1) / 2, feasible(u))

    def conjugate(self, v: Tensor) -> Tensor:
        """⟨p, v⟩ − ½‖p‖² with p = σ(v)."""
        p = self(v)
        return (p * (v - p / 2)).sum(-1)

    def penalty(self, u: Tensor, v: Tensor) -> Tensor:
        """½‖u − p‖² + ⟨u − p, p − v⟩, both terms ≥ 0."""
        p = self(v)
        value = (u - p).square().sum(-1) / 2 + ((u - p) * (p - v)).sum(-1).clamp(min=0)
        return infinite_unless(value, feasible(u))

    def grad_potential(self, u: Tensor) -> Tensor:
        """u, up to a multiple of the ones vector."""
        return u

    def prox(self, w: Tensor, mu: Scalar) -> Tensor:
        """σ(w/(1 + μ))."""
        return self(w / (1 + mu))

    def project(self, u: Tensor) -> Tensor:
        """σ itself."""
        return self(u)


@dataclasses.dataclass(frozen=True)
class Softmax(Activation):
    """σ = softmax, f(u) = Σ u log u on the simplex, f* = logsumexp; B is the cross-entropy less H(y)."""

    vector = True

    @property
    def lipschitz(self) -> float:
        """½: the largest eigenvalue of diag(p) − ppᵀ."""
        return 0.5

    def __call__(self, v: Tensor) -> Tensor:
        """σ(v)."""
        return torch.softmax(v, dim=-1)

    def potential(self, u: Tensor) -> Tensor:
        """Σ u log u."""
        c = u.clamp(min=0)
        return infinite_unless(xlogy(c, c).sum(-1), feasible(u))

    def conjugate(self, v: Tensor) -> Tensor:
        """log Σ e^v."""
        return torch.logsumexp(v, dim=-1)

    def penalty(self, u: Tensor, v: Tensor) -> Tensor:
        """KL(u ‖ softmax(v))."""
        c = u.clamp(min=0)
        kl = (xlogy(c, c) - c * torch.log_softmax(v, dim=-1)).sum(-1)
        return infinite_unless(kl.clamp(min=0), feasible(u))

    def grad_potential(self, u: Tensor) -> Tensor:
        """1 + log u."""
        return 1 + u.log()

    def prox(self, w: Tensor, mu: Scalar) -> Tensor:
        """x = μ ω((w − ν)/μ − log μ), ν by Newton on Σx = 1 (ω: the Wright function, x + μ log x = w − ν).

        Σx is convex and decreasing in ν and ≥ 1 at ν = max w − 1, so Newton climbs to the root.
        """
        mu = torch.as_tensor(mu, dtype=w.dtype, device=w.device)
        nu = w.amax(-1, keepdim=True) - 1
        x = mu * wright_omega((w - nu) / mu - mu.log())
        for _ in range(_NEWTON_STEPS):
            step = (x.sum(-1, keepdim=True) - 1) / (x / (x + mu)).sum(-1, keepdim=True)
            nu = nu + step
            x = mu * wright_omega((w - nu) / mu - mu.log())
            if bool((step.abs() <= 8 * torch.finfo(w.dtype).eps * nu.abs().clamp(min=1)).all()):
                break
        return x / x.sum(-1, keepdim=True)

    def project(self, u: Tensor) -> Tensor:
        """Onto the simplex."""
        return project_simplex(u)

    def jacobian(self, v: Tensor) -> Callable[[Tensor], Tensor]:
        """diag(p) − ppᵀ."""
        p = self(v)
        return lambda direction: p * (direction - (p * direction).sum(-1, keepdim=True))

    def diagonal(self, v: Tensor) -> Tensor:
        """p(1 − p)."""
        p = self(v)
        return p * (1 - p)
