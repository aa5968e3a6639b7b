"""min f(w) ─lift→ min over w and u of loss(y, v_{L+1}) + Σ_l μ_l P_l(u_l, v_l) ─project→ the weights."""

import abc
import copy
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from torchlift.convex.activations import Activation
from torchlift.core import Batch, Fit, Lift, Problem, Task, masks_of
from torchlift.errors import OrderError, SelectionError, TorchliftError
from torchlift.loss import Supervised, inputs_and_target
from torchlift.methods.lifted.network import loss_activation
from torchlift.methods.lifted.problem import LiftedProblem, energies, mean_loss

Mu = float | tuple[float, ...]
"""μ of all hidden layers, or of each."""


class StateLift(Lift):
    """A network's activations become variables, its weights are trained with them; the first in a chain."""

    exact: ClassVar[bool] = True
    solves: ClassVar[bool] = True
    """Whether weights are solved for, which would fill zeros; the run's optimizer keeps them."""

    @abc.abstractmethod
    def problem(self, task: Task, loss: Activation) -> LiftedProblem:
        """The lifted problem, which trains the task's own model."""

    def lift(self, problem: Problem, fit: Fit | None = None) -> LiftedProblem:
        """States as variables beside a copy of the task."""
        del fit
        who = type(self).__name__
        if type(problem) is not Task:
            raise OrderError(
                f"{who} lifts a network's states: it is the first of a chain, got {type(problem).__name__}."
            )
        if getattr(self, "batch_size", None) is not None:
            raise TorchliftError(f"{who} takes the run's batches: give batch_size to fit, not to {who}.")
        pruned = next(iter(masks_of(problem)), None)
        if pruned is not None and self.solves:
            raise SelectionError(
                f"{who} solves for the weights and would fill the zeros of {problem.label(pruned)}, which is "
                "pruned; methods 'contrastive' and 'unified' keep them."
            )
        try:
            lifted = self.problem(copy.deepcopy(problem), output_activation(problem, who))
        except TorchliftError:
            raise
        except ValueError as error:
            raise SelectionError(str(error)) from error
        lifted.author = self
        return lifted

    def project(self, problem: Problem, fit: Fit | None = None) -> Task:
        """The network with the weights that were found."""
        del fit
        if not (isinstance(problem, LiftedProblem) and problem.author == self):
            raise OrderError(f"{self!r} was not the last lift of this problem: project in reverse order.")
        return Task(copy.deepcopy(problem.task.model), problem.loss)

    @property
    def preserving(self) -> bool:
        """No: the objective is that of the states."""
        return False

    @property
    def reversible(self) -> bool:
        """Yes: the weights are the network's own."""
        return True

    @property
    def settings(self) -> Mapping[str, Any]:
        """The energies of all layers in the history, and the method's own rate."""
        rate = getattr(self, "lr", None)
        return {"log": energies} | ({} if rate is None else {"lr": rate})


@dataclasses.dataclass(frozen=True)
class OutputLoss:
    """The Bregman penalty of an activation as a loss."""

    output: Activation

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """The mean over samples."""
        x, y = inputs_and_target(batch)
        return mean_loss(self.output, y, model(x))


def output_activation(task: Task, who: str) -> Activation:
    """The activation whose Bregman penalty is the task's loss."""
    loss = task.loss
    if isinstance(loss, OutputLoss):
        return loss.output
    if not isinstance(loss, Supervised) or loss.causal or loss.module is not None:
        raise SelectionError(f"{who} needs loss='cross_entropy', 'mse' or 'bce', got {loss!r}.")
    return loss_activation(loss.name)


def one_mu(who: str, mu: Mu) -> float:
    """μ of a method that has one for all layers."""
    if not isinstance(mu, int | float):
        raise TorchliftError(f"{who} needs one mu for all layers, got {mu!r}.")
    return float(mu)
