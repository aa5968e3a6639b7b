"""Laws of convex analysis that every operator, function and activation obeys, ours or yours.

Each is a function that passes or raises ``AssertionError``, on random points drawn from ``seed``.
"""

from typing import Any

import torch
from torch import Tensor

from torchlift.convex.activations import Activation
from torchlift.convex.functions import as_function, samples

_PROBES = 8
_INWARD = 1e-8


def _random(like: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like)


def adjoint(operator: Any, x: Tensor, *, seed: int = 0, tol: float | None = None) -> None:
    """⟨A x, y⟩ = ⟨x, Aᵀ y⟩ sample by sample, A is linear, and ``norm(x)`` is not below ‖A x‖/‖x‖."""
    tol = 1e3 * torch.finfo(x.dtype).eps if tol is None else tol
    image = operator.A(x)
    y = _random(image, seed)
    left, right = samples(image * y).sum(1), samples(x * operator.A_adjoint(y)).sum(1)
    scale = samples(image).norm(dim=1) * samples(y).norm(dim=1) + samples(x).norm(dim=1)
    apart = (left - right).abs()
    assert bool((apart <= tol * scale).all()), f"⟨Ax, y⟩ and ⟨x, Aᵀy⟩ differ by {float(apart.max()):.3g}"
    other = _random(x, seed + 1)
    apart = operator.A(2 * x - 3 * other) - (2 * image - 3 * operator.A(other))
    assert float(apart.abs().max()) <= tol * (1 + float(image.abs().max())), "A is not linear"
    if hasattr(operator, "norm"):
        ratio = samples(image).norm(dim=1) / samples(x).norm(dim=1)
        assert bool((ratio <= operator.norm(x) * (1 + tol)).all()), "‖Ax‖ exceeds norm·‖x‖"


def moreau(function: Any, x: Tensor, gamma: float = 1.0, *, seed: int = 0, tol: float = 1e-6) -> None:
    """x = p + γq with p = prox_γf(x) and q = prox_{f*/γ}(x/γ), that is f(p) + f*(q) = ⟨p, q⟩ (Moreau 1965).

    Where f* has no formula: f(z) ≥ f(p) + ⟨q, z − p⟩ for points z all around, which says the same of q.
    """
    f = as_function(function)
    p = f.prox(x, gamma=gamma)
    q = (x - p) / gamma
    value, scale = f.fn(p), 1 + samples(x).square().sum(1) / gamma
    assert bool(torch.isfinite(value).all()), "the prox leaves the domain of f"
    conjugate = f.conjugate((1 - _INWARD) * q)  # rounding may push q over the edge of the domain
    if conjugate is not None:
        gap = value + conjugate - samples(p * q).sum(1)
        assert bool((gap.abs() <= tol * scale).all()), f"f(p) + f*(q) − ⟨p, q⟩ = {gap.tolist()}"
    for k in range(_PROBES):
        away = _random(x, seed + k) * 10.0 ** (1 - k)
        z = f.prox(p + away, gamma=gamma)  # in the domain, whatever it is
        slack = f.fn(z) - value - samples(q * (z - p)).sum(1)
        assert bool((slack >= -tol * scale).all()), f"f(z) < f(p) + ⟨q, z − p⟩ by {(-slack).max():.3g}"


def fenchel_young(activation: Activation, u: Tensor, v: Tensor, *, tol: float = 1e-10) -> None:
    """B(u, v) = f(u) + f*(v) − ⟨u, v⟩ ≥ 0 for u in the domain, with equality at u = σ(v)."""

    def inner(a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum(-1) if activation.vector else a * b

    u = activation.project(u)
    for point in (u, activation(v)):
        terms = activation.potential(point), activation.conjugate(v), inner(point, v)
        penalty = activation.penalty(point, v)
        size = 1 + terms[0].abs() + terms[1].abs() + terms[2].abs()
        apart = (penalty - (terms[0] + terms[1] - terms[2])).abs()
        assert bool((apart <= tol * size).all()), f"B ≠ f + f* − ⟨u, v⟩, by {float(apart.max()):.3g}"
        assert float(penalty.min()) >= -tol * float(size.max()), "B is negative"
    assert bool((penalty <= tol * size).all()), f"B(σ(v), v) = {float(penalty.max()):.3g}, not 0"
