"""Lifted training by the name of its method: states as variables, the same loop, folder and report as all."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from torchlift.core import Fit, Task
from torchlift.errors import TorchliftError
from torchlift.methods.lifted.methods import Method, as_method
from torchlift.methods.recipe import OneLift, Recipe


@dataclasses.dataclass(frozen=True)
class Lifted(Recipe):
    """min over weights and states of loss(y, v_{L+1}) + Σ_l μ_l P_l(u_l, v_l); the weights are the network's.

    ``method`` is a name of ``lifted.train`` with its ``options``, or a value such as
    ``lifted.ISGM(tau=2.0)``, which is a recipe itself. Contrastive and unified training use the
    run's optimizer and schedule; the others solve blocks, ISGM with the schedule on its τ, and have no use
    for an optimizer. The batch size is the run's: "splitting", and "bcd" where blocks are to be exact, need
    one batch of all samples.
    """

    method: str | Method = "contrastive"
    penalty: str = "bregman"
    mu: float | tuple[float, ...] = 1.0
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])

    @property
    def lift(self) -> Method:
        """The method with its options."""
        return as_method(self.method, self.options, self.penalty, self.mu)

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """Models that the method can read."""
        try:
            return self.lift.accepts(task, fit)
        except TorchliftError as error:
            return str(error)

    def __call__(self, task: Task, fit: Fit) -> Task:
        """One fit over the whole budget."""
        return OneLift(self.lift)(task, fit)
