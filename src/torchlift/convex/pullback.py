"""Values and adjoints by plain autograd: ``torch.func.vjp`` would load the compiler, which takes seconds."""

from collections.abc import Callable

import torch
from torch import Tensor


def pullback(function: Callable[[Tensor], Tensor], at: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """function(at), and slope ↦ Jᵀ slope."""
    values, pull = pullbacks(lambda x: (function(x),), at)
    return values[0], lambda slope: pull((slope,))


def pullbacks(
    functions: Callable[[Tensor], tuple[Tensor, ...]], at: Tensor
) -> tuple[tuple[Tensor, ...], Callable[[tuple[Tensor, ...]], Tensor]]:
    """All values at once, and slopes ↦ Σ Jᵀ slope, 0 for what does not depend on ``at``."""
    with torch.enable_grad():
        x = at.detach().requires_grad_()
        values = functions(x)

    def pull(slopes: tuple[Tensor, ...]) -> Tensor:
        pairs = [(v, s) for v, s in zip(values, slopes, strict=True) if v.requires_grad]
        if not pairs:
            return torch.zeros_like(at)
        outputs, weights = zip(*pairs, strict=True)
        twice = any(weight.requires_grad for weight in weights)
        return torch.autograd.grad(
            outputs, x, weights, retain_graph=True, create_graph=twice, materialize_grads=True
        )[0]

    return tuple(value.detach() for value in values), pull
