"""One layer's weights: min μ ΣP(U, AWᵀ + b) + ρ‖W‖², exactly by Newton's method, or by majorised ridge.

Wang and Benning 2022.
"""

import dataclasses

import torch
from torch import Tensor

from torchlift.convex.activations import Linear
from torchlift.convex.solvers.ridge import Ridge
from torchlift.convex.solvers.solved import Solved
from torchlift.convex.solvers.units import newton_units
from torchlift.methods.lifted.penalties import Bregman, Classical, Penalty
from torchlift.methods.lifted.shard import Alone, Shard
from torchlift.methods.lifted.solvers.descent import ConvexBlock, DescentRule, Exact, falling

_NEWTON = 100


@dataclasses.dataclass
class WeightBlock:
    """The W-step of one layer in θ = [W | b] (out × in + 1).

    Every step is a ridge problem with the same Gram matrix, factorized once, and the target
    T = v − ∇ᵥP/ℓ; for ReLU, T = u + min(v, 0): leave negative pre-activations alone. Penalties that are not
    convex in v raise ℓ until the objective falls.
    """

    rows: Tensor
    target: Tensor
    penalty: Penalty
    mu: float
    rho: float
    bias: bool = True
    shard: Shard = dataclasses.field(default_factory=Alone)

    def __post_init__(self) -> None:
        self._factors: dict[float, Ridge] = {}

    def preactivation(self, theta: Tensor) -> Tensor:
        """v = AWᵀ + b."""
        return torch.addmm(theta[:, -1], self.rows, theta[:, :-1].mT)

    def value(self, theta: Tensor) -> Tensor:
        """μ ΣP(u, v) + ρ‖W‖²."""
        fit = self.shard.sum(self.penalty.value(self.target, self.preactivation(theta)).sum())
        return self.mu * fit + self.rho * theta[:, :-1].square().sum()

    def gradient(self, theta: Tensor) -> Tensor:
        """μ ∇ᵥPᵀ[A 1] + 2ρ[W 0]."""
        slope = self.mu * self.penalty.grad_v(self.target, self.preactivation(theta))
        weight = self.shard.sum(slope.mT @ self.rows) + 2 * self.rho * theta[:, :-1]
        bias = self.shard.sum(slope.sum(0)) if self.bias else torch.zeros_like(theta[:, -1])
        return torch.cat([weight, bias[:, None]], 1)

    def step(self, theta: Tensor) -> Tensor:
        """The ridge solution of the majorised problem at θ."""
        v = self.preactivation(theta)
        slope = self.penalty.grad_v(self.target, v)
        value = None if self.penalty.convex_v else self.value
        return falling(theta, lambda c: self._ridge(c, v - slope / c), self.penalty.lipschitz_v, value)

    def _ridge(self, curvature: float, target: Tensor) -> Tensor:
        if curvature not in self._factors:
            rho = 2 * self.rho / (self.mu * curvature)
            self._factors[curvature] = Ridge(self.rows, rho, bias=self.bias, shard=self.shard)
        weight, bias = self._factors[curvature].solve(target)
        return torch.cat([weight, bias[:, None]], 1)

    def block(self) -> ConvexBlock:
        """The block the rules of ``descent`` work on."""
        exact = isinstance(self.penalty, Bregman | Classical)
        return ConvexBlock(
            self.step,
            self.value,
            self.gradient,
            lambda theta: theta,
            shard=Alone(),  # every process has all of θ
            newton=self.newton if exact else None,
            name=f"weights of {self.target.shape[1]} units",
        )

    def newton(self, theta: Tensor, tolerance: float, steps: int) -> Solved:
        """The minimizer, and whether it is one: one ridge solve where the penalty is a square."""
        if isinstance(self.penalty, Classical) or isinstance(self.penalty.activation, Linear):
            new = self.step(theta)
            return Solved(new, True, float(self.gradient(new).abs().max()), 1)
        return newton_units(
            self.rows,
            self.target,
            self.penalty.activation,
            self.mu,
            self.rho,
            theta,
            bias=self.bias,
            sums=self.shard,
            tolerance=tolerance,
            steps=min(steps, _NEWTON),
        )


def glm(
    rows: Tensor,
    target: Tensor,
    penalty: Penalty,
    mu: float,
    rho: float,
    *,
    start: tuple[Tensor, Tensor] | None = None,
    rule: DescentRule | None = None,
    shard: Shard | None = None,
) -> tuple[Tensor, Tensor]:
    """argmin over W, b of μ ΣP(U, AWᵀ + b) + ρ‖W‖²; samples are rows, the bias is free."""
    problem = WeightBlock(rows, target, penalty, mu, rho, shard=shard or Alone())
    if start is None:
        theta = rows.new_zeros(target.shape[1], rows.shape[1] + 1)
    else:
        theta = torch.cat([start[0], start[1][:, None]], 1)
    theta = (rule or Exact())(problem.block(), theta)
    return theta[:, :-1], theta[:, -1]
