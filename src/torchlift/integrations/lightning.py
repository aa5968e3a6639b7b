"""Lifts under a Lightning Trainer: one callback, the module stays as it is.

lifting = Lifting(tl.lifts.SoftMask(strength=1e-4), attribute="model")
pl.Trainer(callbacks=[lifting], …).fit(module, data)     # module.model is a plain module again
"""

import copy
from collections.abc import Mapping
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.optim import Optimizer

from torchlift.core import Lift, Problem, Reparametrized, Task, record_pruned
from torchlift.errors import TorchliftError
from torchlift.integrations.stepping import (
    Stepping,
    check_lift,
    node_optimizer,
    penalty_gradients,
    wants_options,
)
from torchlift.train.optimizers import ADAMW, OptimizerFactory


class Predicting(nn.Module):
    """A lifted problem in the place of its model: the same calls, the lifted weights."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.problem = problem
        self.prepared = False

    def forward(self, *args: Any, **inputs: Any) -> Any:
        """The model's output."""
        return with_weights_inside(self.problem, lambda model: model(*args, **inputs))

    def optimizer(
        self, factory: OptimizerFactory = ADAMW, groups: Mapping[str, Mapping[str, Any]] | None = None
    ) -> Optimizer:
        """An optimizer with the groups the lift's coordinates ask for."""
        self.prepared = True
        return node_optimizer(self.problem, factory, groups)


def with_weights_inside(problem: Problem, function: Any) -> Any:
    """``function(model)`` with the weights in their places, through every lift of weights."""
    if isinstance(problem, Reparametrized):
        return problem.inside(lambda base: with_weights_inside(base, function))
    if isinstance(problem, Task):
        return function(problem.model)
    raise TorchliftError(
        f"a {type(problem).__name__} has an objective of its own, "
        "which the steps of a Lightning module do not compute: use tl.fit."
    )


class Lifting(Callback):
    """Lifts ``module.<attribute>`` before training, and puts the projected model back after it.

    The training step is the user's own. The penalty's gradient is added once all processes have agreed on
    the loss's, so that accumulation and data parallelism need no care. The optimizer has to be made by
    ``self.model.optimizer(factory)`` where the lift's coordinates ask for options of their own.
    """

    def __init__(self, lift: Lift, attribute: str = "model") -> None:
        self.lift = check_lift(lift, "Lifting")
        self.attribute = attribute
        self.stepping: Stepping | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Lift the model, before the optimizer is made and any checkpoint is read."""
        model = getattr(pl_module, self.attribute, None)
        if stage != "fit" or isinstance(model, Predicting):
            return
        if not isinstance(model, nn.Module):
            there = ", ".join(name for name, _ in pl_module.named_children())
            raise TorchliftError(
                f"Lifting(attribute={self.attribute!r}) finds no such module: there are {there}."
            )
        task = Task(copy.deepcopy(model), no_loss)
        record_pruned(task)
        lifted = Predicting(self.lift.lift(task))
        with_weights_inside(lifted.problem, type)  # an objective of its own is an error now
        setattr(pl_module, self.attribute, lifted)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """See that the optimizer asks what the lift asks."""
        model = self.lifted(pl_module)
        if not model.prepared and wants_options(model.problem):
            raise TorchliftError(
                f"{self.lift!r} needs optimizer options of its own: in configure_optimizers "
                f"use self.{self.attribute}.optimizer(partial(torch.optim.AdamW, lr=…))."
            )
        self.stepping = Stepping(model.problem)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """t runs from 0 to 1 over the steps of the training."""
        total = trainer.estimated_stepping_batches
        if total == float("inf"):
            raise TorchliftError("Lifting needs to know when training ends: set max_epochs or max_steps.")
        if self.stepping is not None:
            self.stepping.before(trainer.global_step, int(total))

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        """The penalty's gradient, beside the loss's."""
        for parameter, gradient in penalty_gradients(self.lifted(pl_module).problem):
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """After the optimizer's step; where gradients accumulate there is nothing to bring back."""
        if self.stepping is not None:
            self.stepping.constrain()

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Back to a plain model."""
        if self.stepping is not None:
            self.stepping.close()
            self.stepping = None
        answer = self.lift.project(self.lifted(pl_module).problem)
        assert isinstance(answer, Task)
        setattr(pl_module, self.attribute, answer.model)

    def lifted(self, module: LightningModule) -> Predicting:
        """The lifted model in its place."""
        problem = getattr(module, self.attribute)
        assert isinstance(problem, Predicting)
        return problem


def no_loss(model: nn.Module, batch: Any) -> Tensor:
    """The loss is the module's own."""
    raise TorchliftError("the loss of a Lightning module is in its training_step.")
