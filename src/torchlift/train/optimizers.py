"""The optimizer of a fit: fused where torch can, several side by side where groups ask for it."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from torchlift.core import Reparametrized
from torchlift.core.selection import Groups, merged_groups
from torchlift.errors import TorchliftError

OptimizerFactory = Callable[..., Optimizer]

FUSED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad)

ADAMW: OptimizerFactory = functools.partial(torch.optim.AdamW, lr=1e-3, weight_decay=1e-4)


class Several(Optimizer):
    """Optimizers side by side, each with groups of its own; to the loop they are one."""

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:
        self.optimizers = list(optimizers)
        super().__init__(
            [p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]], {}
        )
        self.join()

    def join(self) -> None:
        """Show the groups of all: what sets a rate here sets it there."""
        self.param_groups = [group for optimizer in self.optimizers for group in optimizer.param_groups]

    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]  (no loss)
        """One step of each."""
        if closure is not None:
            raise TorchliftError("optimizers side by side take no closure.")
        for optimizer in self.optimizers:
            optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        """The states of all."""
        return {"optimizers": [optimizer.state_dict() for optimizer in self.optimizers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        for optimizer, state in zip(self.optimizers, state_dict["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        self.join()


def restore_optimizer(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Continue from a state; what has a weight's shape is laid out in memory as that weight is.

    Checkpoints hold contiguous tensors, and fused steps go by memory, not by index: on a channels_last weight
    they would pair entries of moments with others of the weight.
    """
    optimizer.load_state_dict(state)
    for single in optimizer.optimizers if isinstance(optimizer, Several) else [optimizer]:
        for param, own in single.state.items():
            for name, value in own.items():
                if (
                    isinstance(value, Tensor)
                    and value.shape == param.shape
                    and value.stride() != param.stride()
                ):
                    own[name] = torch.empty_like(param, dtype=value.dtype, requires_grad=False).copy_(value)


def make_optimizer(
    problem: nn.Module, factory: OptimizerFactory, layers: Sequence[Groups] = (), lr: float | None = None
) -> Optimizer:
    """The optimizer over a problem's coordinates: what lifts ask for, then ``layers`` of options on top.

    A group with an ``optimizer`` of its own keeps that one's rate, and goes through all of the schedule in
    every fit, also where several fits follow it once (``own_schedule``); ``lr`` replaces the rate of the
    others.
    """
    by_factory: dict[OptimizerFactory, list[dict[str, Any]]] = {}
    for group in merged_groups(problem, layers):
        kind = group.pop("optimizer", factory)
        by_factory.setdefault(kind, []).extend(by_use(kind, group, problem))
    optimizers: list[Optimizer] = []
    for kind, param_groups in by_factory.items():
        optimizer = built(kind, problem, param_groups)
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] if lr is None or kind is not factory else lr
            group["lr"] *= group.get("lr_factor", 1.0)
            group["initial_lr"], group["own_schedule"] = group["lr"], kind is not factory
        optimizers.append(optimizer)
    return optimizers[0] if len(optimizers) == 1 else Several(optimizers)


def by_use(factory: OptimizerFactory, group: dict[str, Any], problem: nn.Module) -> list[dict[str, Any]]:
    """The group; for an optimizer of matrices, lookup tables apart: their rows are vectors of their own."""
    if not getattr(unbound(factory), "matrices", False) or "matrices" in group:
        return [group]
    looked_up = tables(problem)
    split = [{**group, "params": [p for p in group["params"] if id(p) not in looked_up]}]
    split += [{**group, "params": [p for p in group["params"] if id(p) in looked_up], "matrices": False}]
    return [own for own in split if own["params"]]


def tables(problem: nn.Module) -> set[int]:
    """The identities of the parameters that embeddings look up, or that make what they look up."""
    looked_up: set[int] = set()
    for module in problem.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            looked_up |= {id(p) for p in module.parameters(recurse=False)}
        if isinstance(module, Reparametrized):
            for name, slots in module.slots.items():
                owners = [module.base.get_submodule(slot.rpartition(".")[0]) for slot in slots]
                if any(isinstance(owner, nn.Embedding | nn.EmbeddingBag) for owner in owners):
                    looked_up |= {id(p) for p in module.nodes[name].parameters()}
    return looked_up


def unbound(factory: OptimizerFactory) -> Any:
    """The class a factory makes, where it is a class with options."""
    return factory.func if isinstance(factory, functools.partial) else factory


def built(factory: OptimizerFactory, problem: nn.Module, param_groups: list[dict[str, Any]]) -> Optimizer:
    """What the factory makes, or one line on why it will not do."""
    if isinstance(factory, Optimizer) or not callable(factory):
        raise TorchliftError(
            f"optimizer takes a factory such as partial(torch.optim.SGD, lr=0.1), got {factory!r:.60}."
        )
    try:
        optimizer = fused(factory, problem)(param_groups)
    except (TypeError, ValueError) as error:
        raise TorchliftError(
            f"optimizer {getattr(unbound(factory), '__name__', factory)} cannot be made: {error}."
        ) from error
    if isinstance(optimizer, torch.optim.LBFGS):
        raise TorchliftError("LBFGS calls the objective many times a step, which fit does not: use another.")
    return optimizer


def fused(factory: OptimizerFactory, problem: nn.Module) -> OptimizerFactory:
    """The factory with torch's fused kernel, which torch has on CPU but never picks there by itself."""
    kind = unbound(factory)
    options: Mapping[str, Any] = factory.keywords if isinstance(factory, functools.partial) else {}
    decided = any(name in options for name in ("fused", "foreach", "capturable", "differentiable"))
    sparse = any(isinstance(m, nn.Embedding | nn.EmbeddingBag) and m.sparse for m in problem.modules())
    real = all(p.is_floating_point() for p in problem.parameters())
    if decided or sparse or not real or not (inspect.isclass(kind) and kind in FUSED):
        return factory
    return functools.partial(factory, fused=True)
