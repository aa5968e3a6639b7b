"""α(f₁ + … + f_k): sums of convex functions, their proximal maps by formula or by splitting."""

import dataclasses

import torch
from torch import Tensor

from torchlift.convex.functions.base import Function, Weight, check_weight, reweighted
from torchlift.convex.functions.norms import L2

_STEPS = 500


@dataclasses.dataclass(frozen=True)
class Sum(Function):
    """α(f₁ + … + f_k), as in ``TV(0.01) + L2(1e-3)``."""

    functions: tuple[Function, ...]
    alpha: float = 1.0

    def __post_init__(self) -> None:
        check_weight("Sum", self.alpha)

    def fn(self, x: Tensor) -> Tensor:
        """α Σ f(x)."""
        return self.alpha * torch.stack([function.fn(x) for function in self.functions]).sum(0)

    def prox(self, x: Tensor, gamma: Weight = 1.0) -> Tensor:
        """Squares α₂/2‖·‖² are completed: prox of γf at x/(1 + γα₂), with γ/(1 + γα₂); more by Dykstra."""
        squares = sum(f.alpha for f in self.functions if isinstance(f, L2))
        others = [f for f in self.functions if not isinstance(f, L2)]
        weight = gamma * self.alpha
        scale = 1 + weight * squares
        if not others:
            return x / scale
        if len(others) == 1:
            return others[0].prox(x / scale, weight / scale)
        return _dykstra(others, x / scale, weight / scale)


def _dykstra(functions: list[Function], x: Tensor, weight: Weight) -> Tensor:
    """prox of a sum, by proximal maps of its parts in turn with corrections (Bauschke & Combettes 2008)."""
    corrections = [torch.zeros_like(x) for _ in functions]
    for _ in range(_STEPS):
        last = x
        for k, function in enumerate(functions):
            point = x + corrections[k]
            x = function.prox(point, weight)
            corrections[k] = point - x
        if float((x - last).abs().max()) <= 16 * torch.finfo(x.dtype).eps * (1 + float(x.abs().max())):
            break
    return x


def plus(first: Function, second: Function) -> Sum:
    """One sum of all parts."""
    terms = [g for f in (first, second) for g in (_weighted(f) if isinstance(f, Sum) else (f,))]
    return Sum(tuple(terms))


def _weighted(function: Sum) -> tuple[Function, ...]:
    """The parts of a sum with its α inside."""
    if function.alpha == 1:
        return function.functions
    return tuple(reweighted(f, function.alpha * getattr(f, "alpha", 1.0)) for f in function.functions)
