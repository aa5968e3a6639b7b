"""What keeps a state u at σ(v): four penalties behind one interface.

| name      | value                | grad_v          | minimum over u |
|-----------|----------------------|-----------------|----------------|
| bregman   | f(u) + f*(v) − ⟨u,v⟩ | σ(v) − u        | 0              |
| classical | ½‖u − v‖² + Ψ(u)     | v − u           | e(v)           |
| quadratic | ½‖u − σ(v)‖²         | J(v)ᵀ(σ(v) − u) | 0              |

The contrastive energies are differences of these: see ``torchlift.methods.lifted.contrastive``.
"""

import abc
import dataclasses
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from torchlift.convex.activations import Activation
from torchlift.convex.activations.base import Scalar
from torchlift.convex.pullback import pullback
from torchlift.errors import TorchliftError


@dataclasses.dataclass(frozen=True)
class Penalty(abc.ABC):
    """P(u, v) ≥ 0 for one activation; one number per entry, or per row for vector activations."""

    activation: Activation
    convex_v: ClassVar[bool] = True

    @property
    @abc.abstractmethod
    def lipschitz_v(self) -> float:
        """The Lipschitz constant of grad_v."""

    @property
    @abc.abstractmethod
    def convexity_u(self) -> float:
        """The modulus of strong convexity in u."""

    @property
    def in_v(self) -> "Penalty":
        """What of the penalty depends on v."""
        return self

    @abc.abstractmethod
    def value(self, u: Tensor, v: Tensor) -> Tensor:
        """P(u, v)."""

    @abc.abstractmethod
    def grad_u(self, u: Tensor, v: Tensor) -> Tensor:
        """∂P/∂u."""

    @abc.abstractmethod
    def grad_v(self, u: Tensor, v: Tensor) -> Tensor:
        """∂P/∂v."""

    def jacobian_v(self, v: Tensor) -> Callable[[Tensor], Tensor]:
        """d ↦ ∂²P/∂v² · d, where P is convex in v."""
        raise NotImplementedError(f"{type(self).__name__} is not convex in v")

    @abc.abstractmethod
    def prox_u(self, w: Tensor, v: Tensor, step: Scalar) -> Tensor:
        """argmin over u of ½‖u − w‖² + step · P(u, v)."""

    @abc.abstractmethod
    def domain(self, u: Tensor) -> Tensor:
        """The nearest feasible state."""


class _Potential(Penalty):
    """Penalties of the form f(u) − ⟨u, v⟩ + (something of v): they share everything that concerns u."""

    @property
    def convexity_u(self) -> float:
        """1/ℓ(σ)."""
        return 1 / self.activation.lipschitz

    def grad_u(self, u: Tensor, v: Tensor) -> Tensor:
        """f'(u) − v."""
        return self.activation.grad_u(u, v)

    def prox_u(self, w: Tensor, v: Tensor, step: Scalar) -> Tensor:
        """P_step(w + step·v)."""
        return self.activation.prox(w + step * v, step)

    def domain(self, u: Tensor) -> Tensor:
        """Onto dom f."""
        return self.activation.project(u)


@dataclasses.dataclass(frozen=True)
class Bregman(_Potential):
    """B(u, v) = f(u) + f*(v) − ⟨u, v⟩: biconvex, 0 at the forward pass (Fenchel lifting, lifted Bregman)."""

    @property
    def lipschitz_v(self) -> float:
        """ℓ(σ)."""
        return self.activation.lipschitz

    def value(self, u: Tensor, v: Tensor) -> Tensor:
        """B(u, v)."""
        return self.activation.penalty(u, v)

    def grad_v(self, u: Tensor, v: Tensor) -> Tensor:
        """σ(v) − u."""
        return self.activation.grad_v(u, v)

    def jacobian_v(self, v: Tensor) -> Callable[[Tensor], Tensor]:
        """σ'(v)."""
        return self.activation.jacobian(v)


@dataclasses.dataclass(frozen=True)
class Classical(_Potential):
    """½‖u − v‖² + Ψ(u) = B(u, v) + e(v), e(v) = ½‖v‖² − f*(v): jointly convex (Askari et al. 2018).

    The extra e(v), ½(v₋)² for ReLU, punishes what the network computes where units are off.
    """

    @property
    def lipschitz_v(self) -> float:
        """1."""
        return 1.0

    def value(self, u: Tensor, v: Tensor) -> Tensor:
        """½‖u − v‖² + Ψ(u)."""
        half = v.square() / 2
        half = half.sum(-1) if self.activation.vector else half
        return self.activation.penalty(u, v) + (half - self.activation.conjugate(v))

    def grad_v(self, u: Tensor, v: Tensor) -> Tensor:
        """v − u."""
        return v - u

    def jacobian_v(self, v: Tensor) -> Callable[[Tensor], Tensor]:
        """The identity."""
        return lambda direction: direction


@dataclasses.dataclass(frozen=True)
class Quadratic(Penalty):
    """½‖u − σ(v)‖²: auxiliary coordinates (Carreira-Perpiñán & Wang 2014); not convex in v, needs σ'."""

    convex_v: ClassVar[bool] = False

    @property
    def lipschitz_v(self) -> float:
        """ℓ(σ)²: the Gauss–Newton bound; line searches guard what it leaves out."""
        return self.activation.lipschitz**2

    @property
    def convexity_u(self) -> float:
        """1."""
        return 1.0

    def value(self, u: Tensor, v: Tensor) -> Tensor:
        """½‖u − σ(v)‖²."""
        square = (u - self.activation(v)).square() / 2
        return square.sum(-1) if self.activation.vector else square

    def grad_u(self, u: Tensor, v: Tensor) -> Tensor:
        """u − σ(v)."""
        return u - self.activation(v)

    def grad_v(self, u: Tensor, v: Tensor) -> Tensor:
        """J(v)ᵀ(σ(v) − u)."""
        value, pull = pullback(self.activation, v)
        return pull(value - u)

    def prox_u(self, w: Tensor, v: Tensor, step: Scalar) -> Tensor:
        """(w + step·σ(v))/(1 + step)."""
        return (w + step * self.activation(v)) / (1 + step)

    def domain(self, u: Tensor) -> Tensor:
        """Every state is feasible."""
        return u


@dataclasses.dataclass(frozen=True)
class Sparse(Penalty):
    """P(u, v) + weight·Σu for states u ≥ 0: an ℓ₁ norm on the code of an autoencoder, say."""

    inner: Penalty
    weight: float

    @classmethod
    def of(cls, inner: Penalty, weight: float) -> "Sparse":
        """With the inner penalty's activation, whose states must not be negative."""
        activation = inner.activation
        if activation.vector or float(activation.project(torch.tensor(-1.0))) < 0:
            raise TorchliftError(
                f"lifted: state_l1 needs states that are not negative, as of relu; {activation} has others"
            )
        return cls(activation, inner, weight)

    @property
    def in_v(self) -> Penalty:
        """The inner one: the norm does not see v."""
        return self.inner

    @property
    def lipschitz_v(self) -> float:
        """The inner one's."""
        return self.inner.lipschitz_v

    @property
    def convexity_u(self) -> float:
        """The inner one's."""
        return self.inner.convexity_u

    def value(self, u: Tensor, v: Tensor) -> Tensor:
        """P(u, v) + weight·u."""
        return self.inner.value(u, v) + self.weight * u

    def grad_u(self, u: Tensor, v: Tensor) -> Tensor:
        """∂P/∂u + weight."""
        return self.inner.grad_u(u, v) + self.weight

    def grad_v(self, u: Tensor, v: Tensor) -> Tensor:
        """The inner one's."""
        return self.inner.grad_v(u, v)

    def jacobian_v(self, v: Tensor) -> Callable[[Tensor], Tensor]:
        """The inner one's."""
        return self.inner.jacobian_v(v)

    def prox_u(self, w: Tensor, v: Tensor, step: Scalar) -> Tensor:
        """The inner one's at w − step·weight."""
        return self.inner.prox_u(w - step * self.weight, v, step)

    def domain(self, u: Tensor) -> Tensor:
        """The inner one's."""
        return self.inner.domain(u)


_PENALTIES: dict[str, type[Penalty]] = {"bregman": Bregman, "classical": Classical, "quadratic": Quadratic}


def penalty_of(name: str, activation: Activation) -> Penalty:
    """The penalty called ``name`` for one activation."""
    if name not in _PENALTIES:
        raise ValueError(f"penalty: no penalty {name!r}; known: {', '.join(_PENALTIES)}")
    return _PENALTIES[name](activation)
