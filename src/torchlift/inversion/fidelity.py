"""μ B(y, A u + b): the convex data term of one layer, and the gap of min μB + αJ.

With p = σ(A u + b), r = μAᵀ(y − p) and any t in [0, 1], p_t = y − t(y − p) is feasible for the dual, and

    primal − dual = μ B(p_t, v) + J(u) + J*(t r) − t⟨r, u⟩ ,        t = 1 wherever J*(r) is finite.
"""

import dataclasses

import torch
from torch import Tensor

from torchlift.convex.activations import Activation
from torchlift.convex.descent import Certificate
from torchlift.convex.functions import TV, Box, Function, GroupL1, samples
from torchlift.convex.operators import Affine, Differences

_BISECTIONS = 80
_DOUBLINGS = 60


@dataclasses.dataclass(frozen=True, eq=False)
class Fidelity:
    """μ B(y, A u + b), one number per sample: smooth with constant μℓ‖A‖²."""

    affine: Affine
    activation: Activation
    y: Tensor
    mu: float = 1.0

    def penalty(self, u: Tensor, v: Tensor) -> Tensor:
        """μ B(u, v), one number per sample."""
        return self.mu * self.activation.penalty(u, v).reshape(len(v), -1).sum(1)

    def value(self, x: Tensor) -> Tensor:
        """μ B(y, A x + b)."""
        return self.penalty(self.y, self.affine(x))

    def gradient(self, x: Tensor) -> Tensor:
        """μ Aᵀ(σ(A x + b) − y): no derivative of σ."""
        return self.mu * self.affine.linear.A_adjoint(self.activation(self.affine(x)) - self.y)

    @property
    def lipschitz(self) -> float:
        """μℓ‖A‖²."""
        return self.mu * self.activation.lipschitz * self.affine.norm**2

    def rounding(self, v: Tensor, value: Tensor) -> Tensor:
        """What floating point makes of sums as large as these."""
        return 64 * torch.finfo(v.dtype).eps * (self.mu * samples(self.y * v).abs().sum(1) + value)


def separable_gap(fidelity: Fidelity, function: Function, x: Tensor, dual: Tensor | None) -> Certificate:
    """The gap for functions with a conjugate and a way into its domain: L1, L2, with or without a box."""
    del dual
    v = fidelity.affine(x)
    p = fidelity.activation(v)
    r = fidelity.mu * fidelity.affine.linear.A_adjoint(fidelity.y - p)
    t = function.shrink_into_domain(r)
    assert t is not None
    each = t.reshape(-1, *[1] * (p.ndim - 1))
    misfit = torch.where(t < 1, fidelity.penalty(fidelity.y - each * (fidelity.y - p), v), 0.0)
    scaled = t.reshape(-1, *[1] * (x.ndim - 1)) * r
    conjugate, value = function.conjugate(scaled), function.fn(x)
    assert conjugate is not None
    return Certificate(misfit + value + conjugate - samples(scaled * x).sum(1), fidelity.rounding(v, value))


def boxed_variation_gap(fidelity: Fidelity, tv: TV, box: Box, x: Tensor, dual: Tensor | None) -> Certificate:
    """TV in a bounded box: J(u) − ⟨r, u⟩ + max over the box of ⟨r − Dᵀq, ·⟩."""
    operator, norm = tv.analysis(x.ndim)
    assert dual is not None
    v = fidelity.affine(x)
    r = fidelity.mu * fidelity.affine.linear.A_adjoint(fidelity.y - fidelity.activation(v))
    q = norm.prox_conjugate(dual, 1.0)
    value = tv.fn(x)
    bound = box.conjugate(r - operator.A_adjoint(q))
    return Certificate(value - samples(r * x).sum(1) + bound, fidelity.rounding(v, value))


def variation_gap(fidelity: Fidelity, tv: TV, x: Tensor, dual: Tensor | None) -> Certificate:
    """TV without a box: the free constant is solved for first, then q is mended so that Dᵀq = r exactly.

    Shifting u by the best constant s makes Σr = 0; q + D(DᵀD)⁺(r − Dᵀq) then has Dᵀq = r, and t shrinks it
    into the unit ball. +inf for several channels, or where no best constant exists.
    """
    operator, norm = tv.analysis(x.ndim)
    assert dual is not None
    v = fidelity.affine(x)
    value = tv.fn(x)
    if x.ndim - 1 > operator.dims and x.shape[1] > 1:
        return Certificate(torch.full_like(value, torch.inf), fidelity.rounding(v, value))
    ones = fidelity.affine.linear.A(torch.ones_like(x[:1]))
    shift = _best_shift(fidelity, v, ones)
    moved = v + shift.reshape(-1, *[1] * (v.ndim - 1)) * ones
    p = fidelity.activation(moved)
    r = fidelity.mu * fidelity.affine.linear.A_adjoint(fidelity.y - p)
    t = norm.shrink_into_domain(_mended(operator, norm, dual, r))
    each = t.reshape(-1, *[1] * (p.ndim - 1))
    misfit = torch.where(t < 1, fidelity.penalty(fidelity.y - each * (fidelity.y - p), moved), 0.0)
    gained = fidelity.penalty(fidelity.y, v) - fidelity.penalty(fidelity.y, moved)
    gap = gained + misfit + value - t * samples(r * x).sum(1)
    return Certificate(torch.where(torch.isfinite(shift), gap, torch.inf), fidelity.rounding(v, value))


def _mended(operator: Differences, norm: GroupL1, dual: Tensor, r: Tensor) -> Tensor:
    """The q nearest to the dual variable with Dᵀq = r, up to the mean of r."""
    q = norm.prox_conjugate(dual, 1.0)
    return q + operator.A(operator.solve(r - operator.A_adjoint(q)))


def _best_shift(fidelity: Fidelity, v: Tensor, ones: Tensor) -> Tensor:
    """s with ⟨a, σ(v + s a) − y⟩ = 0, a = A1: increasing in s: bracketed, bisected; inf if there is none."""

    def slope(s: Tensor) -> Tensor:
        moved = v + s.reshape(-1, *[1] * (v.ndim - 1)) * ones
        return samples((fidelity.activation(moved) - fidelity.y) * ones).sum(1)

    zero = v.new_zeros(len(v))
    sign = -slope(zero).sign()
    width = 1e-6 * samples(v).abs().amax(1) / ones.abs().max().clamp(min=1e-30) + 1e-12
    inner, outer = zero, sign * width
    for _ in range(_DOUBLINGS):
        open_ = slope(outer) * sign < 0
        if not bool(open_.any()):
            break
        inner, outer = torch.where(open_, outer, inner), torch.where(open_, 2 * outer, outer)
    closed = slope(outer) * sign >= 0
    for _ in range(_BISECTIONS):
        middle = (inner + outer) / 2
        short = slope(middle) * sign < 0
        inner, outer = torch.where(short, middle, inner), torch.where(short, outer, middle)
    return torch.where(closed, outer, torch.inf)
