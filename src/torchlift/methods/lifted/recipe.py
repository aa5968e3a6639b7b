"""Lifted training as a recipe: states as variables, the same loop, folder, bill and report as all else."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from torchlift.core import Fit, Task, masks_of
from torchlift.errors import SelectionError, TorchliftError
from torchlift.loss import Supervised
from torchlift.methods.lifted.methods import Method, as_method, named_loss
from torchlift.methods.lifted.problem import LiftedProblem, energies
from torchlift.methods.recipe import Recipe


@dataclasses.dataclass(frozen=True)
class Lifted(Recipe):
    """min over weights and states of loss(y, v_{L+1}) + Σ_l μ_l P_l(u_l, v_l); the weights are the network's.

    ``method`` is a name of ``lifted.train`` with its ``options``, or a value such as
    ``lifted.ISGM(tau=2.0)``. Contrastive and unified training use the run's optimizer and schedule; the
    others solve blocks, ISGM with the schedule on its τ, and have no use for an optimizer. The batch size is
    the run's: "splitting", and "bcd" where blocks are to be exact, need one batch of all samples.
    """

    method: str | Method = "contrastive"
    penalty: str = "bregman"
    mu: float | tuple[float, ...] = 1.0
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])

    def problem(self, task: Task) -> LiftedProblem:
        """The task, lifted."""
        pruned = next(iter(masks_of(task)), None)
        if pruned is not None:
            raise SelectionError(f"Lifted would fill the zeros of {task.label(pruned)}, which is pruned.")
        if not isinstance(task.loss, Supervised) or task.loss.causal or task.loss.module is not None:
            raise SelectionError(f"Lifted needs loss='cross_entropy', 'mse' or 'bce', got {task.loss!r}.")
        method = as_method(self.method, self.options)
        if getattr(method, "batch_size", None) is not None:
            raise TorchliftError("Lifted takes the run's batches: give batch_size to fit, not to its method.")
        try:
            return method.problem(task, self.penalty, self.mu, named_loss(task.loss.name))
        except ValueError as error:
            raise SelectionError(str(error)) from error

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """Models that the method can read."""
        del fit
        try:
            self.problem(task)
        except ValueError as error:
            return str(error)
        return None

    def __call__(self, task: Task, fit: Fit) -> Task:
        """One fit over the whole budget; the lifted problem and the task share their weights."""
        problem = self.problem(task)
        method = as_method(self.method, self.options)
        fit(problem, name="lifted", lr=getattr(method, "lr", None), log=energies)
        return task
