"""The choices of one fit."""

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

from torch.optim import Optimizer

from torchlift.core import Problem
from torchlift.core.selection import Groups
from torchlift.errors import TorchliftError
from torchlift.train.optimizers import ADAMW, OptimizerFactory, make_optimizer
from torchlift.train.schedulers import check_schedule, scheduler_class, torch_factors
from torchlift.train.until import Epochs, Plateau, Rule

Schedule = Callable[[float], float]
"""``schedule(t) -> factor`` of the learning rate, t ∈ [0, 1] the progress of the fit."""


def cosine(t: float) -> float:
    """½(1 + cos πt)."""
    return 0.5 * (1 + math.cos(math.pi * t))


NAMED: dict[str, Schedule] = {"constant": lambda t: 1.0, "cosine": cosine}


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
    """Part of the budget, where neither ``until`` nor ``epochs`` is given."""
    optimizer: OptimizerFactory = ADAMW
    lr: float | None = None
    schedule: Literal["constant", "cosine"] | Schedule = "constant"
    span: tuple[float, float] = (0.0, 1.0)
    """The stretch of the schedule this fit covers, where several fits follow one schedule."""
    rate: float = 1.0
    """Times the learning rates that the schedule gives."""
    warmup: float = 0.0
    """Part of the fit in which the learning rate rises to that of the schedule."""
    clip: float | None = None
    groups: tuple[Groups, ...] = ()
    """Optimizer options by glob; those given for the run come last, and have the last word."""
    keep: Literal["last", "best"] = "last"
    remember: tuple[int, ...] = ()
    """Epochs whose weights are handed back with the result."""
    preview: Callable[[Problem], Problem] | None = None
    """What the problem would be if projected now: its loss stands in the history beside the soft one."""
    log: Callable[[Problem], Mapping[str, float]] | None = None
    """More numbers for each row of the history."""
    warm: Any = None
    """A fit's result whose optimizer state this one starts from."""

    patience: int | None = None
    """Epochs without a better loss after which a fit ends; not one that anneals, which must reach t = 1."""

    def __post_init__(self) -> None:
        if self.keep not in ("last", "best"):
            raise TorchliftError(f"keep is 'last' or 'best'; got {self.keep!r}.")

    def changed(self, changes: Mapping[str, Any]) -> "Settings":
        """These settings with some replaced; unknown names are an error that lists the known ones."""
        names = [field.name for field in dataclasses.fields(self)]
        strangers = sorted(set(changes) - set(names))
        if strangers:
            raise TorchliftError(f"fit has no setting {', '.join(strangers)}; it has {', '.join(names)}.")
        values = {name: value for name, value in changes.items() if value is not None}
        if "schedule" in values:
            check_schedule(values["schedule"])
        if "groups" in values:
            values["groups"] = (values["groups"], *self.groups)
        values["rate"] = self.rate * values.get("rate", 1.0)
        return dataclasses.replace(self, **values)

    def rule(self, epochs: float, factor: float = 1.0) -> Rule:
        """When to stop, given the budget in epochs and the factor by which given lengths are shortened."""
        if self.until is not None:
            return self.until.scaled(factor)
        length = factor * self.epochs if self.epochs is not None else self.share * epochs
        return Epochs(length) if self.patience is None else Plateau(self.patience, length)

    def factor(self, steps: int) -> Callable[[int], float] | None:
        """The rate's factor in step k of a fit of so many, or None where the rate stays as it is.

        Fits that follow one schedule of N steps in turn take the N factors of one fit, each once:
        step k of a stretch that starts at a is step a N + k.
        """
        if self.schedule == "constant" and not self.warmup and self.rate == 1.0:
            return None
        start, end = self.span
        whole = steps / (end - start) if end > start else math.inf
        schedule = self.by_progress(max(steps, round(whole)) if math.isfinite(whole) else steps)

        def factor(step: int) -> float:
            t = start if whole == math.inf else (start * whole + step) / max(1.0, whole - 1)
            rise = ramp(step / max(1, steps - 1), self.warmup)
            return self.rate * rise * schedule(min(1.0, t))

        return factor

    def by_progress(self, steps: int) -> Schedule:
        """The schedule as a function of t, for so many steps; one of torch's as it would step after each."""
        if scheduler_class(self.schedule) is None:
            return self.schedule if callable(self.schedule) else NAMED[self.schedule]
        factors = torch_factors(cast(Any, self.schedule), self.base_rate(), steps)
        return lambda t: factors[round(t * (steps - 1))]

    def base_rate(self) -> float:
        """The optimizer's learning rate, which schedulers of torch start from."""
        if self.lr is not None:
            return self.lr
        if isinstance(self.optimizer, functools.partial) and "lr" in self.optimizer.keywords:
            return float(self.optimizer.keywords["lr"])
        default = inspect.signature(self.optimizer).parameters.get("lr")
        return float(default.default) if default and isinstance(default.default, int | float) else 1e-3

    def make_optimizer(self, problem: Problem) -> Optimizer:
        """The optimizer over the problem's coordinates."""
        return make_optimizer(problem, self.optimizer, self.groups, self.lr)
