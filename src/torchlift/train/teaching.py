"""A teacher beside the task: any recipe, on a loss that also matches the outputs of another network."""

import copy
import dataclasses
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from torchlift.core import Batch, Supervised
from torchlift.errors import DataError
from torchlift.loss import call, output

MIX, TEMPERATURE = 0.5, 2.0


@dataclasses.dataclass(frozen=True, eq=False)
class Taught(Supervised):
    """(1 − m) · loss(z, y) + m · T² KL(softmax(z*/T) ‖ softmax(z/T)), with z* the teacher's outputs.

    Hinton, Vinyals, Dean (2015), m = ½ and T = 2; m · mean (z − z*)² where outputs are numbers. What is
    evaluated is the loss alone.
    """

    teacher: nn.Module = dataclasses.field(default_factory=nn.Identity, repr=False)

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """The mixture on a batch."""
        x, y = self.split(batch)
        z = output(call(model, x))
        with torch.no_grad():
            target = output(call(self.teacher.to(z.device), x))
        if target.shape != z.shape:
            shapes = f"{tuple(target.shape[1:])} and {tuple(z.shape[1:])}"
            raise DataError(f"the teacher and the model have outputs of different shapes: {shapes}.")
        return (1 - MIX) * self.criterion(z, y) + MIX * self.match(z, target)

    def match(self, z: Tensor, target: Tensor) -> Tensor:
        """How far the outputs are from the teacher's."""
        if self.name != "cross_entropy":
            return functional.mse_loss(z, target)
        classes = 1 if z.ndim > 3 else -1
        log_p, log_q = (functional.log_softmax(v / TEMPERATURE, classes) for v in (z, target))
        rows = z.numel() // z.shape[classes]
        return functional.kl_div(log_p, log_q, reduction="sum", log_target=True) * (TEMPERATURE**2 / rows)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Taught":
        return self  # a value; the teacher never changes


def taught(loss: Any, teacher: Any) -> Taught:
    """A named loss, or one of torch's, with a teacher beside it."""
    if not isinstance(loss, Supervised):
        raise DataError("teacher= goes with a loss by name or of torch.nn: build it into your own loss.")
    if not isinstance(teacher, nn.Module):
        raise DataError(f"teacher is a trained nn.Module; got a {type(teacher).__name__}.")
    frozen = copy.deepcopy(teacher).requires_grad_(False).eval()
    return Taught(loss.name, loss.causal, loss.module, frozen)
