"""σ = grad f*: an activation is the gradient of a convex conjugate (Wang & Benning 2022)."""

import abc
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor

from torchlift.convex.pullback import pullback

Scalar = float | Tensor


class Activation(abc.ABC):
    """f(u) + f*(v) − ⟨u, v⟩ ≥ 0, and = 0 only for u = σ(v).

    Elementwise activations return one number per entry; those with ``vector = True`` act on the last
    dimension and return one number per row. Nothing is ever summed over samples. Outside the domain of
    the potential, potential and penalty are +inf.
    """

    vector: bool = False

    @property
    @abc.abstractmethod
    def lipschitz(self) -> float:
        """ℓ: the Lipschitz constant of σ; the penalty is ℓ-smooth in v and 1/ℓ-strongly convex in u."""

    @abc.abstractmethod
    def __call__(self, v: Tensor) -> Tensor:
        """σ(v) = argmax over u of ⟨u, v⟩ − f(u)."""

    @abc.abstractmethod
    def potential(self, u: Tensor) -> Tensor:
        """f(u)."""

    @abc.abstractmethod
    def conjugate(self, v: Tensor) -> Tensor:
        """f*(v) = max over u of ⟨u, v⟩ − f(u)."""

    @abc.abstractmethod
    def penalty(self, u: Tensor, v: Tensor) -> Tensor:
        """B(u, v) = f(u) + f*(v) − ⟨u, v⟩, from a form that does not cancel."""

    @abc.abstractmethod
    def grad_potential(self, u: Tensor) -> Tensor:
        """f'(u), one subgradient where f has a corner."""

    @abc.abstractmethod
    def prox(self, w: Tensor, mu: Scalar) -> Tensor:
        """P_μ(w) = argmin over x of ½‖x − w‖² + μ f(x)."""

    @abc.abstractmethod
    def project(self, u: Tensor) -> Tensor:
        """The nearest point of dom f."""

    def grad_u(self, u: Tensor, v: Tensor) -> Tensor:
        """∂B/∂u = f'(u) − v."""
        return self.grad_potential(u) - v

    def grad_v(self, u: Tensor, v: Tensor) -> Tensor:
        """∂B/∂v = σ(v) − u: no derivative of σ."""
        return self(v) - u

    def jacobian(self, v: Tensor) -> Callable[[Tensor], Tensor]:
        """d ↦ J(v)d, J a (generalized) Jacobian of σ, a gradient: symmetric, 0 ⪯ J ⪯ ℓ."""
        return pullback(self, v)[1]

    def tangent(self, v: Tensor, direction: Tensor) -> Tensor:
        """J(v)·direction."""
        return self.jacobian(v)(direction)

    def diagonal(self, v: Tensor) -> Tensor:
        """The diagonal of J(v), all of it for elementwise activations; ℓ where a vector's is not known."""
        if self.vector:
            return torch.full_like(v, self.lipschitz)
        return self.tangent(v, torch.ones_like(v))

    def columns(self, index: slice | Tensor) -> Self:
        """The activation of some of the units (entries of dimension 1)."""
        return self
