"""Linear operators on batches: ⟨A x, y⟩ = ⟨x, Aᵀ y⟩, sample by sample (names as in deepinv: A, A_adjoint)."""

import abc
import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor

_POWER_STEPS = 300
_SAFETY = 1.02


class Operator(abc.ABC):
    """A linear map; the first dimension of what it takes and gives counts samples and is never mixed."""

    @abc.abstractmethod
    def A(self, x: Tensor) -> Tensor:
        """A x."""

    @abc.abstractmethod
    def A_adjoint(self, y: Tensor) -> Tensor:
        """Aᵀ y."""

    def norm(self, like: Tensor) -> float:
        """‖A‖₂, or an upper bound, for inputs like the given batch: power iteration and 2 % more."""
        return power_norm(self, like)

    def __call__(self, x: Tensor) -> Tensor:
        """A x."""
        return self.A(x)


def power_norm(operator: Operator, like: Tensor) -> float:
    """‖A‖₂ from ‖AᵀA x‖/‖x‖ on its way up, times 1.02: an estimate from below with a margin."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, *like.shape[1:], generator=generator, dtype=torch.float64).to(like)
    size, last = x.norm(), 0.0
    for _ in range(_POWER_STEPS):
        if float(size) == 0:
            return 0.0
        x = operator.A_adjoint(operator.A(x / size))
        size = x.norm()
        if abs(float(size) - last) <= 1e-5 * float(size):
            break
        last = float(size)
    return _SAFETY * math.sqrt(float(size))


@dataclasses.dataclass(frozen=True)
class Identity(Operator):
    """x ↦ x."""

    def A(self, x: Tensor) -> Tensor:
        """X itself."""
        return x

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Y itself."""
        return y

    def norm(self, like: Tensor) -> float:
        """1."""
        return 1.0


@dataclasses.dataclass(frozen=True)
class Reshape(Operator):
    """Samples of one shape as samples of another; its own inverse transposed."""

    inward: tuple[int, ...]
    outward: tuple[int, ...]

    def __post_init__(self) -> None:
        if math.prod(self.inward) != math.prod(self.outward):
            raise ValueError(f"Reshape: {self.inward} and {self.outward} hold different numbers of entries")

    def A(self, x: Tensor) -> Tensor:
        """X in the outward shape."""
        return x.reshape(len(x), *self.outward)

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Y in the inward shape."""
        return y.reshape(len(y), *self.inward)

    def norm(self, like: Tensor) -> float:
        """1."""
        return 1.0


@dataclasses.dataclass(frozen=True)
class Composition(Operator):
    """A_k ⋯ A₂ A₁: the operators in the order they are applied."""

    operators: Sequence[Operator]

    def A(self, x: Tensor) -> Tensor:
        """A_k ⋯ A₁ x."""
        for operator in self.operators:
            x = operator.A(x)
        return x

    def A_adjoint(self, y: Tensor) -> Tensor:
        """A₁ᵀ ⋯ A_kᵀ y."""
        for operator in reversed(self.operators):
            y = operator.A_adjoint(y)
        return y

    def norm(self, like: Tensor) -> float:
        """That of the only part which is not orthogonal, else by power iteration."""
        real = [operator for operator in self.operators if not isinstance(operator, Identity | Reshape)]
        if not real:
            return 1.0
        if len(real) > 1:
            return power_norm(self, like)
        for operator in self.operators[: self.operators.index(real[0])]:
            like = operator.A(like)
        return real[0].norm(like)


def compose(*operators: Operator) -> Operator:
    """The operators one after another: ``compose(blur, mask)`` blurs first."""
    flat = [
        p
        for operator in operators
        for p in (operator.operators if isinstance(operator, Composition) else (operator,))
    ]
    return flat[0] if len(flat) == 1 else Composition(tuple(flat))
