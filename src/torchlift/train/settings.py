"""The choices of one fit, and the optimiser made from them."""

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import nn
from torch.optim import Optimizer

from torchlift.core import Problem, TorchliftError, groups
from torchlift.train.until import Epochs, Rule

OptimizerFactory = Callable[..., Optimizer]
Schedule = Callable[[float], float]
"""``schedule(t) -> factor`` of the learning rate, t ∈ [0, 1] the progress of the fit."""

FUSED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad)

ADAMW: OptimizerFactory = functools.partial(torch.optim.AdamW, lr=1e-3, weight_decay=1e-4)


def cosine(t: float) -> float:
    """½(1 + cos πt)."""
    return 0.5 * (1 + math.cos(math.pi * t))


def ramp(t: float, length: float) -> float:
    """min(1, t / length): a linear rise that never stands at zero."""
    return 1.0 if t >= length else max(t / length, 0.01)


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a problem is fitted; what a call leaves open comes from the run."""

    name: str = "fit"
    until: Rule | None = None
    epochs: float | None = None
    share: float = 1.0
    """Part of the run's epochs, where neither ``until`` nor ``epochs`` is given."""
    optimizer: OptimizerFactory = ADAMW
    lr: float | None = None
    schedule: Literal["constant", "cosine"] | Schedule = "constant"
    span: tuple[float, float] = (0.0, 1.0)
    """The stretch of the schedule this fit covers, where several fits follow one schedule."""
    warmup: float = 0.0
    """Part of the fit in which the learning rate rises to that of the schedule."""
    clip: float | None = None
    groups: Mapping[str, Mapping[str, Any]] | None = None
    keep: Literal["last", "best"] = "last"
    remember: tuple[int, ...] = ()
    preview: Callable[[Problem], Problem] | None = None
    log: Callable[[Problem], Mapping[str, float]] | None = None
    warm: Any = None

    def __post_init__(self) -> None:
        if not (self.schedule in ("constant", "cosine") or callable(self.schedule)):
            raise TorchliftError(f"schedule is 'constant', 'cosine' or callable(t); got {self.schedule!r}.")
        if self.keep not in ("last", "best"):
            raise TorchliftError(f"keep is 'last' or 'best'; got {self.keep!r}.")

    def changed(self, changes: Mapping[str, Any]) -> "Settings":
        """These settings with some replaced; unknown names are an error that lists the known ones."""
        known = [field.name for field in dataclasses.fields(self)]
        strangers = sorted(set(changes) - set(known))
        if strangers:
            raise TorchliftError(f"fit has no setting {', '.join(strangers)}; it has {', '.join(known)}.")
        return dataclasses.replace(self, **{k: v for k, v in changes.items() if v is not None})

    def rule(self, epochs: float) -> Rule:
        """When to stop, given the run's epochs."""
        return self.until or Epochs(self.epochs if self.epochs is not None else self.share * epochs)

    def factor(self) -> Schedule | None:
        """The schedule as a function, or None where the rate stays as it is."""
        if self.schedule == "constant" and not self.warmup:
            return None
        named: dict[str, Schedule] = {"constant": lambda t: 1.0, "cosine": cosine}
        whole = self.schedule if callable(self.schedule) else named[self.schedule]
        start, end = self.span
        return lambda t: ramp(t, self.warmup) * whole(start + (end - start) * t)

    def make_optimizer(self, problem: Problem) -> Optimizer:
        """The optimiser over the problem's coordinates, with the groups its nodes ask for."""
        optimizer = fused(self.optimizer, problem)(groups(problem, self.groups or {"*": {}}))
        for group in optimizer.param_groups:
            if self.lr is not None:
                group["lr"] = self.lr
            group["lr"] *= group.get("lr_factor", 1.0)
            group["initial_lr"] = group["lr"]
        return optimizer


def fused(factory: OptimizerFactory, problem: nn.Module) -> OptimizerFactory:
    """The factory with torch's fused kernel, which torch has on CPU but never picks there by itself."""
    kind = factory.func if isinstance(factory, functools.partial) else factory
    given: Mapping[str, Any] = factory.keywords if isinstance(factory, functools.partial) else {}
    chosen = any(name in given for name in ("fused", "foreach", "capturable", "differentiable"))
    sparse = any(isinstance(m, nn.Embedding | nn.EmbeddingBag) and m.sparse for m in problem.modules())
    if chosen or sparse or not (inspect.isclass(kind) and kind in FUSED):
        return factory
    return functools.partial(factory, fused=True)
