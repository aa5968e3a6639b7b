"""What AvaGrad, Delayed Adam and Adam with growing ε share: two moments per weight, and torch's conventions.

Equations (6.4), (6.5) and (6.7) of Savarese, "Principled Approximation Methods": w ← w − α·η ⊙ m with
m ← β1·m + (1 − β1)·g and v ← β2·v + (1 − β2)·g². The methods differ in η, which is theirs to define.
"""
# The foreach operations are what torch's own optimizers are written in; torch has no public name for them.
# pyright: reportPrivateUsage=false

import abc
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from .blocks import Slot, TensorBlock, blocks

ParamGroup = dict[str, Any]


class MomentOptimizer(Optimizer, abc.ABC):
    """Keeps g, m, v and t for each weight; a method says in :meth:`advance` how a group moves."""

    def __init__(self, params: ParamsT, options: ParamGroup) -> None:
        super().__init__(params, options)

    @abc.abstractmethod
    def advance(self, group: ParamGroup, blocks: Sequence[TensorBlock]) -> None:
        """Take one step with the blocks of ``group``; their t counts it already, decay is yet to do."""

    def add_param_group(self, param_group: ParamGroup) -> None:
        """Add a group, as torch's optimizers do, and check its options."""
        super().add_param_group(param_group)
        check_moment_options(type(self).__name__, self.param_groups[-1])

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step; ``closure`` reevaluates the loss, which is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            with torch.set_grad_enabled(group["differentiable"]):
                self._step_group(group)
        return loss

    def _step_group(self, group: ParamGroup) -> None:
        params: list[Tensor] = []
        grads: list[Tensor] = []
        firsts: list[Tensor] = []
        seconds: list[Tensor] = []
        steps: list[Tensor] = []
        self._init_group(group, params, grads, firsts, seconds, steps)
        if not params:
            return
        if any(map(Tensor.is_complex, params)):
            params, grads, firsts, seconds = map(as_real, (params, grads, firsts, seconds))
        torch._foreach_add_(steps, torch.ones((), device=steps[0].device), alpha=1.0)
        in_graph = group["capturable"]
        counts = map(precise_step, steps, params) if in_graph else [step.item() for step in steps]
        slots = [Slot(*slot) for slot in zip(params, grads, firsts, seconds, counts, strict=True)]
        batch = group["foreach"] is not False and not group["differentiable"]
        self.advance(group, list(blocks(slots, batch=batch)))

    def _init_group(  # torch.compile knows this name: it runs the method as it is instead of tracing it
        self,
        group: ParamGroup,
        params: list[Tensor],
        grads: list[Tensor],
        firsts: list[Tensor],
        seconds: list[Tensor],
        steps: list[Tensor],
    ) -> None:
        """Fill the lists for the weights that have a gradient, which is made dense."""
        for param in group["params"]:
            if param.grad is None:
                continue
            state = self.state[param]
            if not state:
                state["step"] = torch.zeros((), device=param.device if group["capturable"] else "cpu")
                state["exp_avg"] = torch.zeros_like(param, memory_format=torch.preserve_format)
                state["exp_avg_sq"] = torch.zeros_like(param, memory_format=torch.preserve_format)
            params.append(param)
            grads.append(param.grad.to_dense() if param.grad.is_sparse else param.grad)
            firsts.append(state["exp_avg"])
            seconds.append(state["exp_avg_sq"])
            steps.append(state["step"])


def as_real(tensors: list[Tensor]) -> list[Tensor]:
    """Complex tensors as pairs of reals (views), the others as they are."""
    return [torch.view_as_real(tensor) if tensor.is_complex() else tensor for tensor in tensors]


def precise_step(step: Tensor, param: Tensor) -> Tensor:
    """The number of a step beside its parameter, in at least single precision."""
    return step.to(device=param.device, dtype=torch.promote_types(param.dtype, torch.float32))


def correction(beta: float, count: float | Tensor) -> float | Tensor:
    """1 − β^t, the bias correction of a moving average."""
    return 1 - beta**count


def plus_number(scratch: Tensor, amount: float | Tensor, group: ParamGroup) -> Tensor:
    """A scratch tensor plus a number, in place unless a graph needs what was there."""
    return scratch + amount if group["differentiable"] else scratch.add_(amount)


def direct(block: TensorBlock, group: ParamGroup, *, alive_only: bool = False) -> None:
    """Turn the gradients of a block into what is descended: their sign, and the coupled decay."""
    if group["maximize"]:
        block.negate()
    if group["weight_decay"] and not group["decoupled"]:
        block.couple(group["weight_decay"], alive_only=alive_only)


def decoupled_decay(group: ParamGroup) -> float:
    """λ where weight decay acts on the weights themselves, 0 where it is part of the gradient."""
    return group["weight_decay"] if group["decoupled"] else 0.0


def check_moment_options(owner: str, options: ParamGroup) -> None:
    """Raise for options no method here can work with, in torch's words where torch has them."""
    lr, eps, decay, betas = (options[key] for key in ("lr", "eps", "weight_decay", "betas"))
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError(f"{owner}: Tensor lr must be 1-element, and this one has {lr.numel()}")
    if not lr >= 0:
        raise ValueError(f"{owner}: Invalid learning rate: {lr}; it must be at least 0")
    if not eps > 0:
        raise ValueError(f"{owner}: Invalid epsilon value: {eps}; it must be greater than 0")
    if not decay >= 0:
        raise ValueError(f"{owner}: Invalid weight_decay value: {decay}; it must be at least 0")
    for index, beta in enumerate(betas):
        if not 0 <= beta < 1:
            raise ValueError(
                f"{owner}: Invalid beta parameter at index {index}: {beta}; it must lie in [0, 1)"
            )
