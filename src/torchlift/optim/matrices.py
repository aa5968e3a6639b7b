"""What Muon and SOAP share: matrices by a method of their own, everything else by AdamW.

A weight of two or more axes is taken as the matrix of outputs by everything else, or as ``blocks`` such
matrices, one below the other, where its group says so: the queries, keys and values of each head, say. The
rest is biases, gains, single rows or columns, and groups with ``matrices=False``; to :func:`torchlift.fit`,
also the lookup tables of embeddings.
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

from .moments import ParamGroup, check_moment_options

MOMENTS = {"momentum_buffer", "exp_avg", "exp_avg_sq"}
"""What a state holds in the shape of its weight."""


class MatrixOptimizer(Optimizer, abc.ABC):
    """A method says in :meth:`advance` how matrices move; AdamW moves the rest."""

    matrices: ClassVar[bool] = True
    """Tells torchlift's loop to put lookup tables into a group with ``matrices=False``."""

    def __init__(self, params: ParamsT, options: ParamGroup) -> None:
        super().__init__(params, options | {"matrices": True, "blocks": 1})

    @abc.abstractmethod
    def advance(self, group: ParamGroup, params: list[Tensor]) -> None:
        """One step of the matrices of a group."""

    def add_param_group(self, param_group: ParamGroup) -> None:
        """Add a group, as torch's optimizers do, and check its options."""
        super().add_param_group(param_group)
        check_moment_options(type(self).__name__, self.param_groups[-1])
        check_blocks(type(self).__name__, self.param_groups[-1])

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a state, its moments laid out in memory as the weights are: AdamW goes by memory."""
        super().load_state_dict(state_dict)
        for param, state in self.state.items():
            for name in MOMENTS & state.keys():
                if state[name].stride() != param.stride():
                    state[name] = torch.empty_like(param, requires_grad=False).copy_(state[name])

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step; ``closure`` reevaluates the loss, which is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            live = [p for p in group["params"] if p.grad is not None]
            matrices = [p for p in live if group["matrices"] and is_matrix(p)]
            taken = set(map(id, matrices))
            self.adamw(group, [p for p in live if id(p) not in taken])
            if matrices:
                self.advance(group, matrices)
        return loss

    def adamw(self, group: ParamGroup, params: list[Tensor]) -> None:
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
            weight_gradients(params),
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


def is_matrix(param: Tensor) -> bool:
    """Whether a weight is stepped as a matrix: real, with more than one row and column."""
    return param.ndim > 1 and not param.is_complex() and 1 not in matrix_sides(param)


def matrix_sides(param: Tensor) -> tuple[int, int]:
    """Outputs, and everything else."""
    return param.shape[0], math.prod(param.shape[1:])  # no view of a row: that takes microseconds


def check_blocks(owner: str, group: ParamGroup) -> None:
    """Raise for blocks that a matrix of the group cannot be cut into."""
    count = group["blocks"]
    if not isinstance(count, int) or count < 1:
        raise ValueError(f"{owner}: blocks is a whole number of at least 1, got {count!r}")
    if count == 1 or not group["matrices"]:
        return
    for param in group["params"]:
        if is_matrix(param) and (len(param) % count or len(param) == count):
            raise ValueError(
                f"{owner}: {len(param)} rows are not {count} equal blocks of two rows or more; "
                "give blocks= to the weights that have them, by groups="
            )


def by_shape(params: Sequence[Tensor]) -> list[list[Tensor]]:
    """The weights that can be stepped together as one batch of products."""
    alike: dict[Any, list[Tensor]] = defaultdict(list)
    for param in params:
        alike[matrix_sides(param), param.dtype, param.device].append(param)
    return list(alike.values())


def blocks_of(tensor: Tensor, blocks: int) -> Tensor:
    """A weight as a batch of its blocks, each a matrix."""
    return tensor.reshape(blocks, tensor.shape[0] // blocks, -1)


def stacked(tensors: Sequence[Tensor], blocks: int = 1) -> Tensor:
    """Weights of one shape as a batch of matrices."""
    if len(tensors) == 1:
        return blocks_of(tensors[0], blocks)
    return torch.cat([blocks_of(tensor, blocks) for tensor in tensors])


def unstacked(batch: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """A batch of matrices in the shapes of the weights."""
    blocks = len(batch) // len(like)
    return [matrix.reshape(tensor.shape) for matrix, tensor in zip(batch.split(blocks), like, strict=True)]


def weight_gradients(params: list[Tensor]) -> list[Tensor]:
    """The gradients of weights that have one."""
    return [p.grad.to_dense() if p.grad.is_sparse else p.grad for p in params if p.grad is not None]
