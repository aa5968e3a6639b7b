"""Problems that take their own steps: blocks solved in turn, not a gradient and an optimizer."""

import abc
import dataclasses
import logging
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from torchlift.core import Batch, Problem
from torchlift.train.settings import Settings

LOG = logging.getLogger("torchlift")


@dataclasses.dataclass(frozen=True)
class StepContext:
    """Where in its fit a step stands, and which process takes it."""

    t: float = 0.0
    """The progress of the fit, in [0, 1]."""
    rate: float = 1.0
    """The schedule's factor."""
    batch: int = 0
    """The number of the batch in its epoch."""
    batches: int = 1
    """How many an epoch has."""
    last: bool = True
    """Whether this step ends the epoch, or the fit."""
    rank: int = 0
    world: int = 1


class Stepper(Problem):
    """A problem that changes its own coordinates; what it needs to go on is in its state dict.

    Every process is handed the whole batch: how the work is shared is the problem's affair.
    """

    converged: bool = False
    """Whether another epoch would change nothing that matters: ends the fit."""

    def start(self, context: StepContext) -> None:
        """Called before the first step of this life of the fit, on every process."""
        del context

    @abc.abstractmethod
    def advance(self, batch: Batch, context: StepContext) -> Tensor:
        """One step on one batch; the mean objective."""


class Idle(Optimizer):
    """The optimizer of a problem that takes its own steps: there is nothing to hold."""

    def __init__(self) -> None:
        super().__init__([torch.zeros(0)], {"lr": None})

    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]  (no loss)
        """Nothing."""

    def state_dict(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing."""


def optimizer_of(problem: Problem, settings: Settings) -> Optimizer:
    """The settings' optimizer, or none for a problem without use for it; what it leaves out is said."""
    if not isinstance(problem, Stepper):
        return settings.make_optimizer(problem)
    unused = [name for name in ("clip", "groups", "lr", "warm") if getattr(settings, name) not in (None, ())]
    if unused:
        LOG.warning("fit %r takes its own steps, without %s.", settings.name, ", ".join(unused))
    return Idle()
