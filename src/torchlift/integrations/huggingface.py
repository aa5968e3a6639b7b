"""Lifts under the ``transformers`` Trainer: a wrapper for the model, a callback for the loop.

lifted = LiftedModel(model, tl.lifts.SoftMask(strength=1e-4))
trainer = Trainer(lifted, args, train_dataset=data, callbacks=[LiftCallback()],
                  optimizers=(lifted.optimizer(partial(torch.optim.AdamW, lr=1e-3)), None))
trainer.train()
plain = lifted.project()             # the ordinary model again; plain.save_pretrained(…)
"""

import copy
import inspect
import types
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from transformers import TrainerCallback

from torchlift.core import Lift, Problem, Task, record_pruned
from torchlift.errors import TorchliftError
from torchlift.integrations.stepping import Stepping, check_lift, node_optimizer, wants_options
from torchlift.loss import Batch, output
from torchlift.train.optimizers import ADAMW, OptimizerFactory


class OwnLoss:
    """The loss a model of ``transformers`` computes itself, from a batch that holds its labels."""

    logits: Tensor | None = None
    """Of the last call, for whoever evaluates; taken away by reading it with :meth:`pop`."""

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """``model(**batch).loss``."""
        result = model(**batch)
        loss = getattr(result, "loss", None)
        if not isinstance(loss, Tensor):
            raise TorchliftError(
                f"{type(model).__name__} gave no loss: the batch needs labels (it has {', '.join(batch)})."
            )
        self.logits = output(result) if hasattr(result, "logits") else None
        return loss

    def pop(self) -> Tensor | None:
        """The logits, once."""
        logits, self.logits = self.logits, None
        return logits


class LiftedModel(nn.Module):
    """A ``transformers`` model lifted for the Trainer: ``forward(**batch)`` gives loss and logits.

    In training the loss is the lifted objective with its penalties; in evaluation it is the model's own loss
    at the present soft weights. The model that is given is left alone.
    """

    accepts_loss_kwargs = False  # the Trainer divides by the accumulation steps

    def __init__(self, model: nn.Module, lift: Lift) -> None:
        super().__init__()
        self.lift = check_lift(lift, "LiftedModel")
        self.config = getattr(model, "config", None)
        task = Task(copy.deepcopy(model), OwnLoss())
        record_pruned(task)
        self.problem: Problem = lift.lift(task)
        self.prepared = False
        self.forward = types.MethodType(with_signature_of(model), self)
        self.register_state_dict_post_hook(drop_repeats)
        self.register_load_state_dict_pre_hook(fill_repeats)

    def forward(self, labels: Tensor | None = None, **inputs: Any) -> dict[str, Tensor]:
        """The objective of a batch, and the logits."""
        batch = inputs if labels is None else inputs | {"labels": labels}
        loss = self.problem(batch) if self.training else self.problem.task_loss(batch)
        source = self.problem.loss
        logits = source.pop() if isinstance(source, OwnLoss) else None
        return {"loss": loss} if logits is None else {"loss": loss, "logits": logits}

    def optimizer(
        self, factory: OptimizerFactory = ADAMW, groups: Mapping[str, Mapping[str, Any]] | None = None
    ) -> Optimizer:
        """The optimizer to hand to the Trainer: with the groups the lift's coordinates ask for."""
        self.prepared = True
        return node_optimizer(self.problem, factory, groups)

    def project(self) -> nn.Module:
        """The plain model, for good."""
        answer = self.lift.project(copy.deepcopy(self.problem))
        if not isinstance(answer, Task):
            raise TorchliftError(f"{self.lift!r} projects to a {type(answer).__name__}, not to a model.")
        return answer.model.eval()

    def gradient_checkpointing_enable(self, **options: Any) -> None:
        """As the model has it."""
        raise TorchliftError("gradient checkpointing is not for lifted models: set it on the model before.")


class LiftCallback(TrainerCallback):
    """Turns the dials before each step, holds zeros and constraints after it."""

    stepping: Stepping | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any) -> None:
        """Look at the model once."""
        if not isinstance(model, LiftedModel):
            raise TorchliftError(
                f"LiftCallback is for a LiftedModel, the Trainer has a {type(model).__name__}."
            )
        if not model.prepared and wants_options(model.problem):
            raise TorchliftError(
                f"{model.lift!r} needs optimizer options of its own: "
                "pass optimizers=(lifted.optimizer(partial(torch.optim.AdamW, lr=…)), None) to the Trainer."
            )
        self.stepping = Stepping(model.problem)

    def on_step_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """t runs from 0 to 1 over the steps of the training."""
        if self.stepping is not None:
            self.stepping.before(state.global_step, state.max_steps)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """After the optimizer's step."""
        if self.stepping is not None:
            self.stepping.constrain()

    def on_train_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Leave nothing behind."""
        if self.stepping is not None:
            self.stepping.close()
            self.stepping = None


def with_signature_of(model: nn.Module) -> Any:
    """LiftedModel's forward under the model's signature: by it the Trainer picks a data set's columns."""

    def forward(self: LiftedModel, *args: Any, **inputs: Any) -> dict[str, Tensor]:
        return LiftedModel.forward(self, *args, **inputs)

    own = inspect.signature(type(model).forward)
    forward.__signature__ = own  # pyright: ignore[reportFunctionMemberAccess]  (inspect's own protocol)
    return forward


def repeats(module: nn.Module, prefix: str) -> dict[str, str]:
    """Names of tied tensors, and the first name each has: a safetensors file holds a tensor once."""
    first: dict[int, str] = {}
    names: dict[str, str] = {}
    for name, tensor in [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]:
        first_name = first.setdefault(id(tensor), name)
        if first_name != name:
            names[prefix + name] = prefix + first_name
    return names


def drop_repeats(module: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    """Each tensor once in the state dict."""
    for name in repeats(module, prefix):
        state.pop(name, None)


def fill_repeats(module: nn.Module, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    """And under all its names when it comes back."""
    for name, first_name in repeats(module, prefix).items():
        if first_name in state:
            state.setdefault(name, state[first_name])
