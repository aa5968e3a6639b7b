"""Training, then ``tl.compress``: the candidate of a search that compresses after the fact."""

import dataclasses
import itertools
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.core import Fit, Lift, Task
from torchlift.errors import TorchliftError, machine_fault
from torchlift.loss import inputs_and_target
from torchlift.methods.recipe import Recipe, RecipeLike, as_recipe

BATCHES = 4
"""Of the training data, for calibration."""
RATIOS = None, 0.25, 0.5, 0.75
"""Of channels to cut: what compress finds, then more, as long as a target is out of reach."""


@dataclasses.dataclass(frozen=True)
class Compressing(Recipe):
    """w* = compress(argmin f): train, then cut and quantize on inputs without labels."""

    bytes: int | None = None
    latency: float | None = None
    bits: int | None = None
    training: RecipeLike | Lift | None = None
    """Plain training unless given."""

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Train and compress."""
        trained = as_recipe(self.training)(task, fit)
        inputs = torch.cat(
            [inputs_and_target(batch)[0] for batch in itertools.islice(fit.batches(), BATCHES)]
        )
        return Task(self.compressed(trained.model.eval(), inputs), task.loss)

    def compressed(self, model: nn.Module, inputs: Tensor) -> nn.Module:
        """The model at its targets, with more channels cut than compress would where that is not enough."""
        from torchlift.compress import compress

        targets: dict[str, Any] = {"bytes": self.bytes, "latency": self.latency, "bits": self.bits}
        failures: list[TorchliftError] = []
        for ratio in RATIOS:
            try:
                return compress(model, inputs, **targets, ratio=ratio, progress=False).model
            except TorchliftError as error:
                if machine_fault(error):
                    raise
                failures.append(error)
        raise failures[0]

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """What the training says."""
        return as_recipe(self.training).accepts(task, fit)
