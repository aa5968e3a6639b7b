"""The optimizer of a fit: fused where torch can, several side by side where groups ask for it."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from torchlift.core import Reparametrized
from torchlift.core.selection import Groups, merged_groups
from torchlift.errors import TorchliftError

OptimizerFactory = Callable[..., Optimizer]

FUSED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad)

ADAMW: OptimizerFactory = functools.partial(torch.optim.AdamW, lr=1e-3, weight_decay=1e-4)


class Several(Optimizer):
    """Optimizers side by side, each with groups of its own; to the loop they are one."""

    def __init__(self, parts: Sequence[Optimizer]) -> None:
        self.parts = list(parts)
        super().__init__([p for part in parts for group in part.param_groups for p in group["params"]], {})
        self.join()

    def join(self) -> None:
        """Show the parts' own groups: what sets a rate here sets it there."""
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]  (no loss)
        """One step of each."""
        if closure is not None:
            raise TorchliftError("optimizers side by side take no closure.")
        for part in self.parts:
            part.step()

    def state_dict(self) -> dict[str, Any]:
        """The states of all."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self.join()


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
    parts: list[Optimizer] = []
    for kind, chosen in by_factory.items():
        optimizer = built(kind, problem, chosen)
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] if lr is None or kind is not factory else lr
            group["lr"] *= group.get("lr_factor", 1.0)
            group["initial_lr"], group["own_schedule"] = group["lr"], kind is not factory
        parts.append(optimizer)
    return parts[0] if len(parts) == 1 else Several(parts)


def by_use(factory: OptimizerFactory, group: dict[str, Any], problem: nn.Module) -> list[dict[str, Any]]:
    """The group; for an optimizer of matrices, lookup tables apart: their rows are vectors of their own."""
    if not getattr(unbound(factory), "matrices", False) or "matrices" in group:
        return [group]
    looked_up = tables(problem)
    parts = [{**group, "params": [p for p in group["params"] if id(p) not in looked_up]}]
    parts += [{**group, "params": [p for p in group["params"] if id(p) in looked_up], "matrices": False}]
    return [part for part in parts if part["params"]]


def tables(problem: nn.Module) -> set[int]:
    """The identities of the parameters that embeddings look up, or that make what they look up."""
    found: set[int] = set()
    for part in problem.modules():
        if isinstance(part, nn.Embedding | nn.EmbeddingBag):
            found |= {id(p) for p in part.parameters(recurse=False)}
        if isinstance(part, Reparametrized):
            for name, slots in part.slots.items():
                owners = [part.base.get_submodule(slot.rpartition(".")[0]) for slot in slots]
                if any(isinstance(owner, nn.Embedding | nn.EmbeddingBag) for owner in owners):
                    found |= {id(p) for p in part.nodes[name].parameters()}
    return found


def unbound(factory: OptimizerFactory) -> Any:
    """The class a factory makes, where it is a class with options."""
    return factory.func if isinstance(factory, functools.partial) else factory


def built(factory: OptimizerFactory, problem: nn.Module, chosen: list[dict[str, Any]]) -> Optimizer:
    """What the factory makes, or one line on why it will not do."""
    if isinstance(factory, Optimizer) or not callable(factory):
        raise TorchliftError(
            f"optimizer takes a factory such as partial(torch.optim.SGD, lr=0.1), got {factory!r:.60}."
        )
    try:
        made = fused(factory, problem)(chosen)
    except (TypeError, ValueError) as error:
        raise TorchliftError(
            f"optimizer {getattr(unbound(factory), '__name__', factory)} cannot be made: {error}."
        ) from error
    if isinstance(made, torch.optim.LBFGS):
        raise TorchliftError("LBFGS calls the objective many times a step, which fit does not: use another.")
    return made


def fused(factory: OptimizerFactory, problem: nn.Module) -> OptimizerFactory:
    """The factory with torch's fused kernel, which torch has on CPU but never picks there by itself."""
    kind = unbound(factory)
    given: Mapping[str, Any] = factory.keywords if isinstance(factory, functools.partial) else {}
    chosen = any(name in given for name in ("fused", "foreach", "capturable", "differentiable"))
    sparse = any(isinstance(m, nn.Embedding | nn.EmbeddingBag) and m.sparse for m in problem.modules())
    real = all(p.is_floating_point() for p in problem.parameters())
    if chosen or sparse or not real or not (inspect.isclass(kind) and kind in FUSED):
        return factory
    return functools.partial(factory, fused=True)
