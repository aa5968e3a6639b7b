"""What Muon and SOAP share: matrices by a method of their own, everything else by AdamW.

A weight of two or more axes is taken as the matrix of outputs by everything else; matrices of one shape are
stepped together, as one batch of products. The rest is biases, gains, single rows or columns, and groups
with ``matrices=False``; to :func:`torchlift.fit`, also the lookup tables of embeddings.
"""

import abc
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim.adamw import adamw
from torch.optim.optimizer import Optimizer, ParamsT

from .moments import check

Group = dict[str, Any]


class MatrixOptimizer(Optimizer, abc.ABC):
    """A method says in :meth:`advance` how matrices of one shape move; AdamW moves the rest."""

    matrices: ClassVar[bool] = True
    """Tells torchlift's loop to put lookup tables into a group with ``matrices=False``."""

    def __init__(self, params: ParamsT, options: Group) -> None:
        super().__init__(params, options | {"matrices": True})

    @abc.abstractmethod
    def advance(self, group: Group, params: list[Tensor]) -> None:
        """One step of the weights of one shape."""

    def add_param_group(self, param_group: Group) -> None:
        """Add a group, as torch's optimizers do, and check its options."""
        super().add_param_group(param_group)
        check(type(self).__name__, self.param_groups[-1])

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step; ``closure`` reevaluates the loss, which is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            live = [p for p in group["params"] if p.grad is not None]
            alike: dict[Any, list[Tensor]] = defaultdict(list)
            for param in live:
                alike[kind(param) if group["matrices"] else None].append(param)
            self.adamw(group, alike.pop(None, []))
            for params in alike.values():
                self.advance(group, params)
        return loss

    def adamw(self, group: Group, params: list[Tensor]) -> None:
        """The step of what is not a matrix."""
        if not params:
            return
        states = [self.state[p] for p in params]
        for param, state in zip(params, states, strict=True):
            if not state:
                state["step"] = torch.zeros((), dtype=torch.float32)
                state |= {name: torch.zeros_like(param) for name in ("exp_avg", "exp_avg_sq")}
        adamw(
            list(params),
            gradients(params),
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=all(p.is_floating_point() and p.device.type == "cpu" for p in params),
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )


def kind(param: Tensor) -> Any:
    """What matrices that are stepped together have in common; None for what is not a matrix."""
    if param.ndim < 2 or param.is_complex() or 1 in sides(param):
        return None
    return sides(param), param.dtype, param.device


def sides(param: Tensor) -> tuple[int, int]:
    """Outputs, and everything else."""
    return param.shape[0], math.prod(param.shape[1:])  # no view of a row: that takes microseconds


def stacked(tensors: Sequence[Tensor]) -> Tensor:
    """Weights of one shape as a batch of matrices."""
    return torch.stack([tensor.flatten(1) for tensor in tensors])


def unstacked(batch: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """A batch of matrices in the shapes of the weights."""
    return [matrix.view_as(tensor) for matrix, tensor in zip(batch, like, strict=True)]


def gradients(params: list[Tensor]) -> list[Tensor]:
    """The gradients of weights that have one."""
    return [p.grad.to_dense() if p.grad.is_sparse else p.grad for p in params if p.grad is not None]
