"""u ↦ u + Wᵀσ(W u + b): the residual network whose inversion is jointly convex (spec: K, M, V = Wᵀ, W).

With z_l = σ_l(W_l u_{l−1} + b_l) and u_l = u_{l−1} + W_lᵀz_l the bilinear terms of the Bregman penalties
telescope, −Σ⟨z_l, W_l u_{l−1}⟩ = ½Σ‖u_l − u_{l−1}‖² + ½‖u₀‖² − ½‖u_L‖², so that

    Σ_l B_l(z_l, W_l u_{l−1} + b_l) + λ/2 ‖u_L − y‖² + αJ(u₀)

is convex in (u₀, z) for λ ≥ 1. Every u_l is affine in (u₀, z) and eliminated.
"""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from torchlift.convex.activations import Activation
from torchlift.convex.activations import get as get_activation
from torchlift.convex.functions import Function, samples
from torchlift.convex.operators import power_norm
from torchlift.convex.operators.base import Operator


class MonotoneResidual(nn.Module):
    """u ↦ u + Wᵀσ(W u + b), one weight used both ways; several of them in a Sequential are a network."""

    def __init__(
        self, features: int, inner: int, activation: str | Activation = "relu", **parameters: float
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inner, features) / features**0.5)
        self.bias = nn.Parameter(torch.zeros(inner))
        self.act = get_activation(activation, **parameters)

    def forward(self, u: Tensor) -> Tensor:
        """u + σ(u Wᵀ + b) W."""
        return u + self.act(u @ self.weight.mT + self.bias) @ self.weight


@dataclasses.dataclass(frozen=True, eq=False)
class Trajectory(Operator):
    """(u₀, z₁, …, z_L) in one row ↦ (u₀, u₁, …, u_L), u_l = u_{l−1} + W_lᵀz_l."""

    weights: tuple[Tensor, ...]

    def split(self, x: Tensor) -> list[Tensor]:
        """u₀ and the z_l of a row."""
        sizes = [self.weights[0].shape[1], *(len(w) for w in self.weights)]
        return list(x.split(sizes, 1))

    def A(self, x: Tensor) -> Tensor:
        """All states, samples × (L + 1) × features."""
        u, *z = self.split(x)
        states = [u]
        for weight, state in zip(self.weights, z, strict=True):
            states.append(states[-1] + state @ weight)
        return torch.stack(states, 1)

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Sums of everything that comes later."""
        later = y.flip(1).cumsum(1).flip(1)
        pulled_back = [later[:, k + 1] @ w.mT for k, w in enumerate(self.weights)]
        return torch.cat([later[:, 0], *pulled_back], 1)


@dataclasses.dataclass(frozen=True, eq=False)
class ResidualEnergy:
    """Σf*_l(v_l) + ½Σ‖u_l − u_{l−1}‖² + ½‖u₀‖² − ½‖u_L‖² + λ/2‖u_L − y‖²: the smooth part in (u₀, z)."""

    blocks: Sequence[MonotoneResidual]
    y: Tensor
    weight: float = 1.0

    @property
    def trajectory(self) -> Trajectory:
        """(u₀, z) ↦ u."""
        return Trajectory(tuple(block.weight.detach() for block in self.blocks))

    def _preactivations(self, u: Tensor) -> list[Tensor]:
        return [u[:, k] @ b.weight.detach().mT + b.bias.detach() for k, b in enumerate(self.blocks)]

    def value(self, x: Tensor) -> Tensor:
        """One number per sample."""
        u = self.trajectory.A(x)
        total = sum(
            _sum(block.act.conjugate(v))
            for block, v in zip(self.blocks, self._preactivations(u), strict=True)
        )
        first, last = u[:, 0], u[:, -1]
        steps = u.diff(dim=1).square().sum((1, 2)) + first.square().sum(1) - last.square().sum(1)
        return total + steps / 2 + self.weight / 2 * (last - self.y).square().sum(1)

    def gradient(self, x: Tensor) -> Tensor:
        """Slopes at every state, carried back to (u₀, z)."""
        u = self.trajectory.A(x)
        slope = torch.zeros_like(u)
        for k, (block, v) in enumerate(zip(self.blocks, self._preactivations(u), strict=True)):
            slope[:, k] += block.act(v) @ block.weight.detach()
        moves = u.diff(dim=1)
        slope[:, 1:] += moves
        slope[:, :-1] -= moves
        slope[:, 0] += u[:, 0]
        slope[:, -1] += self.weight * (u[:, -1] - self.y) - u[:, -1]
        return self.trajectory.A_adjoint(slope)

    @property
    def lipschitz(self) -> float:
        """(max ℓ‖W‖² + 4 + λ)·‖trajectory‖²."""
        norms = [
            b.act.lipschitz * float(torch.linalg.matrix_norm(b.weight.detach(), 2)) ** 2 for b in self.blocks
        ]
        row = torch.cat([self.y, *(self.y.new_zeros(len(self.y), len(b.weight)) for b in self.blocks)], 1)
        return (max(norms) + 4 + self.weight) * power_norm(self.trajectory, row) ** 2


@dataclasses.dataclass(frozen=True, eq=False)
class StatePotential(Function):
    """αJ(u₀) + Σ f_l(z_l) − ⟨z_l, b_l⟩ on rows (u₀, z): every part has its own prox."""

    blocks: Sequence[MonotoneResidual]
    first: Function
    shape: tuple[int, ...]

    def _widths(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        sizes = [x.shape[1] - sum(len(b.bias) for b in self.blocks), *(len(b.bias) for b in self.blocks)]
        u, *z = x.split(sizes, 1)
        return u.reshape(len(x), *self.shape), z

    def fn(self, x: Tensor) -> Tensor:
        """One number per sample."""
        u, z = self._widths(x)
        inner = sum(
            _sum(b.act.potential(s)) - s @ b.bias.detach() for b, s in zip(self.blocks, z, strict=True)
        )
        return self.first.fn(u) + inner

    def prox(self, x: Tensor, gamma: float | Tensor = 1.0) -> Tensor:
        """Part by part."""
        u, z = self._widths(x)
        states = [b.act.prox(s + gamma * b.bias.detach(), gamma) for b, s in zip(self.blocks, z, strict=True)]
        return torch.cat([samples(self.first.prox(u, gamma)), *states], 1)


def _sum(values: Tensor) -> Tensor:
    return values.reshape(len(values), -1).sum(1)
