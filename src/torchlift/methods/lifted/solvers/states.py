"""One layer's states by scaled proximal steps (Wang and Benning 2022): μ P(x, v) + μ₊ ΣP₊(u₊, Ax + b)."""

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from torchlift.convex.solvers.fixed import Pulled, newton_states
from torchlift.convex.solvers.solved import Solved
from torchlift.methods.lifted.penalties import Bregman, Classical, Penalty
from torchlift.methods.lifted.shard import Alone, Shard
from torchlift.methods.lifted.solvers.descent import ConvexBlock, constant_momentum, falling

_ROUNDS = 500


@dataclasses.dataclass(frozen=True)
class Above:
    """The layer above: penalty, weight, state and affine map (with adjoint and norm of its linear part)."""

    penalty: Penalty
    mu: float
    state: Tensor
    forward: Callable[[Tensor], Tensor]
    adjoint: Callable[[Tensor], Tensor]
    norm: float
    of_rows: Callable[[Tensor], "Above"] | None = None

    def rows(self, index: Tensor) -> "Above":
        """What some samples see."""
        if self.of_rows is not None:
            return self.of_rows(index)
        return dataclasses.replace(self, state=self.state[index])

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

    def slope(self, x: Tensor) -> Tensor:
        """∇g(x) = μ₊ Aᵀ ∇ᵥP₊(u₊, Ax + b)."""
        above = self.above
        return above.mu * above.adjoint(above.penalty.grad_v(above.state, above.forward(x)))

    def gradient(self, x: Tensor) -> Tensor:
        """∇g(x) + μ ∇ᵤP(x, v)."""
        return self.slope(x) + self.mu * self.penalty.grad_u(x, self.preactivation)

    def step(self, x: Tensor) -> Tensor:
        """One proximal gradient step; penalties not convex in v lengthen 1/L until the objective falls."""
        slope = self.slope(x)
        value = None if self.above.penalty.convex_v else self.value
        return falling(x, lambda c: self._prox(x, slope, c), max(self.above.lipschitz, 1e-12), value)

    def _prox(self, x: Tensor, slope: Tensor, curvature: float) -> Tensor:
        return self.penalty.prox_u(x - slope / curvature, self.preactivation, self.mu / curvature)

    def block(self) -> ConvexBlock:
        """The block the rules of ``descent`` work on; κ = 1 + L/(μ·modulus)."""
        exact = isinstance(self.penalty, Bregman | Classical) and self.above.penalty.convex_v
        return ConvexBlock(
            self.step,
            self.value,
            self.gradient,
            self.penalty.domain,
            self.momentum,
            self.shard,
            self.newton if exact else None,
            f"states of shape {tuple(self.preactivation.shape)}",
        )

    @property
    def momentum(self) -> float:
        """(√κ − 1)/(√κ + 1)."""
        return constant_momentum(1 + self.above.lipschitz / (self.mu * self.penalty.convexity_u))

    def newton(self, x: Tensor, tolerance: float, steps: int) -> Solved:
        """The minimizer, and whether it is one."""
        return newton_states(_Pulled(self), x, tolerance=tolerance, rounds=min(steps, _ROUNDS))


class _Pulled(Pulled):
    """g(x) = μ₊ P₊(u₊, Ax + b), as the Newton solver sees it."""

    def __init__(self, block: StateBlock) -> None:
        self.block, self.activation = block, block.penalty.activation
        self.mu, self.momentum = block.mu, block.momentum

    def pull(self, x: Tensor) -> Tensor:
        """∇g(x) − μv."""
        return self.block.slope(x) - self.block.mu * self.block.preactivation

    def bend(self, x: Tensor) -> Callable[[Tensor], Tensor]:
        """d ↦ μ₊ Aᵀ P₊'' A d."""
        above = self.block.above
        v, origin = above.forward(x), above.forward(torch.zeros_like(x))
        inner = above.penalty.jacobian_v(v)
        return lambda d: above.mu * above.adjoint(inner(above.forward(d) - origin))

    def step(self, x: Tensor) -> Tensor:
        """The block's own."""
        return self.block.step(x)

    def rows(self, index: Tensor) -> "_Pulled":
        """Some samples."""
        some = self.block.preactivation[index]
        return _Pulled(
            dataclasses.replace(self.block, preactivation=some, above=self.block.above.rows(index))
        )
