"""Residual and unrolled proximal networks, written as K u, M u = V z, z = σ(W u + b)."""

import abc
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from torchlift.convex.activations import Activation, Clip
from torchlift.convex.activations import get as get_activation
from torchlift.errors import DataError
from torchlift.methods.lifted.unified import Unified


class Recursive(Unified):
    """A network whose hidden states follow one another: u_l from u_{l−1} and z_l.

    ``preactivation`` is (W u + b)_l, ``following`` solves (M u = V z)_l for u_l, ``readout`` is K u; all are
    affine in u and z. ``lifted.SoftEnergy`` is their energy with the constraint soft.
    """

    @abc.abstractmethod
    def start(self, x: Tensor) -> Tensor:
        """u₀."""

    @abc.abstractmethod
    def preactivation(self, index: int, u: Tensor, x: Tensor) -> Tensor:
        """(W u + b)_l, l counted from 0."""

    @abc.abstractmethod
    def following(self, index: int, u: Tensor, z: Tensor) -> Tensor:
        """u_l from M u = V z."""

    @abc.abstractmethod
    def readout(self, u: Tensor, x: Tensor) -> Tensor:
        """K u."""

    def run(self, x: Tensor, activations: Sequence[Callable[[Tensor], Tensor]]) -> Tensor:
        """The recursion with these functions in place of the activations."""
        u = self.start(x)
        for index, activation in enumerate(activations):
            u = self.following(index, u, activation(self.preactivation(index, u, x)))
        return self.readout(u, x)


class ResidualNet(Recursive):
    """u_l = u_{l−1} + V_l σ(W_l u_{l−1} + b_l), u₀ = E x, output K u_L + c."""

    def __init__(
        self,
        inputs: int,
        width: int,
        inner: int,
        depth: int,
        outputs: int,
        activation: str | Activation = "relu",
    ) -> None:
        super().__init__()
        self.activations = [get_activation(activation)] * depth
        self.embed = nn.Linear(inputs, width)
        self.inward = nn.ModuleList(nn.Linear(width, inner) for _ in range(depth))
        self.outward = nn.ModuleList(nn.Linear(inner, width, bias=False) for _ in range(depth))
        self.head = nn.Linear(width, outputs)

    def start(self, x: Tensor) -> Tensor:
        """E x."""
        return self.embed(x)

    def preactivation(self, index: int, u: Tensor, x: Tensor) -> Tensor:
        """W_l u + b_l."""
        return self.inward[index](u)

    def following(self, index: int, u: Tensor, z: Tensor) -> Tensor:
        """u + V_l z."""
        return u + self.outward[index](z)

    def readout(self, u: Tensor, x: Tensor) -> Tensor:
        """K u + c."""
        return self.head(u)


class ProximalNet(Recursive):
    """Unrolled dual forward–backward: z_l = clip((I − τL_lL_lᵀ)z_{l−1} + τL_l x, ±t), output x − L_{L+1}ᵀz_L.

    The prox of the conjugate of t‖·‖₁ is the clip; every L_l is learned. z₀ is ``first``: zero, a given
    vector (of ``dual`` entries, fixed), or "learned" from zero on.
    """

    def __init__(
        self,
        size: int,
        dual: int,
        depth: int,
        *,
        tau: float = 0.1,
        threshold: float = 0.1,
        first: Literal["zero", "learned"] | Tensor = "zero",
    ) -> None:
        super().__init__()
        if isinstance(first, Tensor) and first.shape != (dual,):
            raise ValueError(f"ProximalNet: first has {dual} entries, got shape {tuple(first.shape)}")
        if not isinstance(first, Tensor) and first not in ("zero", "learned"):
            raise ValueError(f"ProximalNet: first is 'zero', 'learned' or a vector, got {first!r}")
        start = first.detach().clone() if isinstance(first, Tensor) else torch.zeros(dual)
        self.first = nn.Parameter(start, requires_grad=isinstance(first, str) and first == "learned")
        self.tau = tau
        self.activations = [Clip(-threshold, threshold)] * depth
        operator = torch.randn(dual, size) / size**0.5
        self.operators = nn.ParameterList(nn.Parameter(operator.clone()) for _ in range(depth + 1))

    def start(self, x: Tensor) -> Tensor:
        """z₀."""
        return self.first.expand(x.size(0), -1)

    def preactivation(self, index: int, u: Tensor, x: Tensor) -> Tensor:
        """u − τL(Lᵀu − x)."""
        operator = self.operators[index]
        return u - self.tau * linear(u @ operator - x, operator)

    def following(self, index: int, u: Tensor, z: Tensor) -> Tensor:
        """z."""
        return z

    def readout(self, u: Tensor, x: Tensor) -> Tensor:
        """x − Lᵀu."""
        return x - u @ self.operators[-1]


class RecurrentNet(Recursive):
    """u_t = σ(W [x_t, u_{t−1}] + b), u₀ = 0, output K u_T + c: one cell for all ``steps`` of a sequence.

    Inputs are samples × steps × features. ``lifted.BCD`` finds W by one exact block over all time steps.
    """

    def __init__(
        self, inputs: int, width: int, outputs: int, steps: int, activation: str | Activation = "tanh"
    ) -> None:
        super().__init__()
        self.activations = [get_activation(activation)] * steps
        self.cell, self.head = nn.Linear(inputs + width, width), nn.Linear(width, outputs)

    def start(self, x: Tensor) -> Tensor:
        """0."""
        if x.ndim != 3 or x.shape[1] != len(self.activations):
            raise DataError(
                f"RecurrentNet: inputs are samples × {len(self.activations)} steps × features, "
                f"got {tuple(x.shape)}"
            )
        return x.new_zeros(len(x), self.head.in_features)

    def preactivation(self, index: int, u: Tensor, x: Tensor) -> Tensor:
        """W [x_t, u] + b."""
        return self.cell(torch.cat([x[:, index], u], 1))

    def following(self, index: int, u: Tensor, z: Tensor) -> Tensor:
        """z."""
        return z

    def readout(self, u: Tensor, x: Tensor) -> Tensor:
        """K u + c."""
        return self.head(u)
