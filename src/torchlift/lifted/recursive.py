"""Residual and unrolled proximal networks, written as K u, M u = V z, z = σ(W u + b)."""

import abc
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from torchlift.convex.activations import Activation, Clip
from torchlift.convex.activations import get as get_activation
from torchlift.lifted.unified import Unified


class Recursive(Unified):
    """A network whose hidden states follow one another: u_l from u_{l−1} and z_l."""

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

    def preactivations(self, x: Tensor, z: Sequence[Tensor]) -> list[Tensor]:
        """v₁, …, v_L and the output, for given activations."""
        u, found = self.start(x), list[Tensor]()
        for index, state in enumerate(z):
            found.append(self.preactivation(index, u, x))
            u = self.following(index, u, state)
        return [*found, self.readout(u, x)]

    def states(self, x: Tensor) -> list[Tensor]:
        """z of the forward pass."""
        u, states = self.start(x), list[Tensor]()
        for index, activation in enumerate(self.activations):
            states.append(activation(self.preactivation(index, u, x)))
            u = self.following(index, u, states[-1])
        return states


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

    The prox of the conjugate of t‖·‖₁ is the clip; every L_l is learned.
    """

    def __init__(self, size: int, dual: int, depth: int, *, tau: float = 0.1, threshold: float = 0.1) -> None:
        super().__init__()
        self.tau = tau
        self.activations = [Clip(-threshold, threshold)] * depth
        first = torch.randn(dual, size) / size**0.5
        self.operators = nn.ParameterList(nn.Parameter(first.clone()) for _ in range(depth + 1))

    def start(self, x: Tensor) -> Tensor:
        """0."""
        return x.new_zeros(len(x), len(self.operators[0]))

    def preactivation(self, index: int, u: Tensor, x: Tensor) -> Tensor:
        """u − τL(Lᵀu − x)."""
        operator = self.operators[index]
        return u - self.tau * (u @ operator - x) @ operator.mT

    def following(self, index: int, u: Tensor, z: Tensor) -> Tensor:
        """z."""
        return z

    def readout(self, u: Tensor, x: Tensor) -> Tensor:
        """x − Lᵀu."""
        return x - u @ self.operators[-1]
