"""Convex functions by value and proximal map, one number per sample (names as in deepinv: fn, prox)."""

import abc
import dataclasses
import math
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from torchlift.errors import TorchliftError

Weight = float | Tensor


class ConvexError(TorchliftError):
    """A function, operator or solver that was given what it cannot use."""


@runtime_checkable
class Proximable(Protocol):
    """Any object with a value ``fn(x)`` and ``prox(x, gamma=…)``: priors of deepinv are such objects."""

    def fn(self, x: Tensor) -> Tensor:
        """f(x), one number per sample or their sum."""
        ...

    def prox(self, x: Tensor, *, gamma: float) -> Tensor:
        """argmin over z of ½‖z − x‖² + γ f(z)."""
        ...


class Function(abc.ABC):
    """f(x) for batches of samples, convex, with its proximal map."""

    @abc.abstractmethod
    def fn(self, x: Tensor) -> Tensor:
        """f(x), one number per sample."""

    @abc.abstractmethod
    def prox(self, x: Tensor, gamma: Weight = 1.0) -> Tensor:
        """argmin over z of ½‖z − x‖² + γ f(z)."""

    def conjugate(self, q: Tensor) -> Tensor | None:
        """f*(q), one number per sample, or None where it has no formula."""
        del q
        return None

    def shrink_into_domain(self, q: Tensor) -> Tensor | None:
        """The largest t ≤ 1 per sample with f*(t q) < ∞, or None where it has no formula."""
        del q
        return None

    def __add__(self, other: "Function") -> "Function":
        """f + g."""
        from torchlift.convex.functions.sums import plus  # which are functions themselves

        return plus(self, as_function(other))

    def prox_conjugate(self, q: Tensor, step: float) -> Tensor:
        """prox of step·f* at q = q − step·prox of f/step at q/step (Moreau 1965)."""
        return q - step * self.prox(q / step, 1 / step)


def samples(x: Tensor) -> Tensor:
    """Every sample as one row."""
    return x.reshape(len(x), -1)


def check_weight(name: str, alpha: float) -> None:
    """Raise for weights that are not positive numbers."""
    if not 0 < alpha < math.inf:
        raise ConvexError(f"{name}: alpha must be positive and finite, got {alpha}")


@dataclasses.dataclass(frozen=True, eq=False)
class Custom(Function):
    """α f for any object f with ``fn`` and ``prox(x, gamma=…)``."""

    inner: Any
    alpha: float = 1.0

    def __post_init__(self) -> None:
        check_weight(type(self.inner).__name__, self.alpha)

    def fn(self, x: Tensor) -> Tensor:
        """α f(x); a value summed over the batch already is computed sample by sample."""
        value = torch.as_tensor(self.inner.fn(x))
        if value.shape != (len(x),):
            value = torch.stack([torch.as_tensor(self.inner.fn(x[i : i + 1])).sum() for i in range(len(x))])
        return self.alpha * value

    def prox(self, x: Tensor, gamma: Weight = 1.0) -> Tensor:
        """The object's own, with γα."""
        return self.inner.prox(x, gamma=gamma * self.alpha)


def as_function(function: Any) -> Function:
    """A function of ours as it is; any other object with ``fn`` and ``prox`` wrapped; else an error."""
    if isinstance(function, Function):
        return function
    if isinstance(function, type) or not isinstance(function, Proximable):
        raise ConvexError(
            "reg must be TV(alpha), L1(alpha), L2(alpha), Wavelets(alpha), a sum of them, TV(0.1) + L2(0.1), "
            f"or an object with fn and prox, got {function!r}"
        )
    return Custom(function)


def reweighted(function: Function, alpha: float) -> Function:
    """The same function with another α."""
    if not any(field.name == "alpha" for field in dataclasses.fields(function)):  # pyright: ignore[reportArgumentType]
        raise ConvexError(f"{type(function).__name__} has no field alpha to choose")
    return dataclasses.replace(function, alpha=alpha)  # pyright: ignore[reportArgumentType, reportCallIssue]
