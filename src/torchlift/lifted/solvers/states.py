"""One layer's states by scaled proximal steps (Wang and Benning 2022): μ P(x, v) + μ₊ ΣP₊(u₊, Ax + b)."""

import dataclasses
from collections.abc import Callable

from torch import Tensor

from torchlift.lifted.penalties import Penalty
from torchlift.lifted.shard import Alone, Shard
from torchlift.lifted.solvers.descent import Block, constant_momentum

_DOUBLINGS = 40


@dataclasses.dataclass(frozen=True)
class Above:
    """The layer above: penalty, weight, state and affine map (with adjoint and norm of its linear part)."""

    penalty: Penalty
    mu: float
    state: Tensor
    forward: Callable[[Tensor], Tensor]
    adjoint: Callable[[Tensor], Tensor]
    norm: float

    @property
    def lipschitz(self) -> float:
        """μ₊ ℓ₊ ‖A‖²."""
        return self.mu * self.penalty.lipschitz_v * self.norm**2


@dataclasses.dataclass(frozen=True)
class StateBlock:
    """x ← prox of (μ/L) P(·, v) at x − ∇g(x)/L, with g(x) = μ₊ P₊(u₊, Ax + b) and L = μ₊ ℓ₊ ‖A‖²."""

    penalty: Penalty
    mu: float
    preactivation: Tensor
    above: Above
    shard: Shard = dataclasses.field(default_factory=Alone)

    def value(self, x: Tensor) -> Tensor:
        """μ P(x, v) + μ₊ P₊(u₊, Ax + b), summed over all samples."""
        here = self.penalty.value(x, self.preactivation).sum()
        there = self.above.penalty.value(self.above.state, self.above.forward(x)).sum()
        return self.shard.sum(self.mu * here + self.above.mu * there)

    def _slope(self, x: Tensor) -> Tensor:
        """∇g(x) = μ₊ Aᵀ ∇ᵥP₊(u₊, Ax + b)."""
        above = self.above
        return above.mu * above.adjoint(above.penalty.grad_v(above.state, above.forward(x)))

    def gradient(self, x: Tensor) -> Tensor:
        """∇g(x) + μ ∇ᵤP(x, v)."""
        return self._slope(x) + self.mu * self.penalty.grad_u(x, self.preactivation)

    def step(self, x: Tensor) -> Tensor:
        """One proximal gradient step; penalties not convex in v lengthen 1/L until the objective falls."""
        slope = self._slope(x)
        curvature = max(self.above.lipschitz, 1e-12)
        new = self._prox(x, slope, curvature)
        if self.above.penalty.convex_v:
            return new
        value = self.value(x)
        for _ in range(_DOUBLINGS):
            if self.value(new) <= value:
                return new
            curvature *= 2
            new = self._prox(x, slope, curvature)
        return x

    def _prox(self, x: Tensor, slope: Tensor, curvature: float) -> Tensor:
        return self.penalty.prox_u(x - slope / curvature, self.preactivation, self.mu / curvature)

    def block(self) -> Block:
        """The block the rules of ``descent`` work on; κ = 1 + L/(μ·modulus)."""
        condition = 1 + self.above.lipschitz / (self.mu * self.penalty.convexity_u)
        return Block(
            self.step,
            self.value,
            self.gradient,
            self.penalty.domain,
            constant_momentum(condition),
            self.shard,
        )
