"""Training, then ``tl.compress``: the candidate of a search that compresses after the fact."""

import dataclasses
import itertools

import torch

from torchlift.core import Fit, Lift, Task
from torchlift.loss import split
from torchlift.methods.recipe import Recipe, RecipeLike, as_recipe

BATCHES = 4
"""Of the training data, for calibration."""


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
        from torchlift.compress import compress

        trained = as_recipe(self.training)(task, fit)
        inputs = torch.cat([split(batch)[0] for batch in itertools.islice(fit.batches(), BATCHES)])
        targets = {"bytes": self.bytes, "latency": self.latency, "bits": self.bits}
        small = compress(trained.model, inputs, **targets, progress=False)  # pyright: ignore[reportArgumentType]
        return Task(small.model, task.loss)

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """What the training says."""
        return as_recipe(self.training).accepts(task, fit)
