"""Plain training, then ``tl.compress``: the candidate of a search that compresses after the fact."""

import dataclasses
import itertools

import torch

from torchlift.core import Fit, Task
from torchlift.loss import split
from torchlift.methods.recipe import Recipe

BATCHES = 4
"""Of the training data, for calibration."""


@dataclasses.dataclass(frozen=True)
class Compressing(Recipe):
    """w* = compress(argmin f): train as it is, then cut and quantize on inputs without labels."""

    bytes: int | None = None
    latency: float | None = None
    bits: int | None = None

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Train and compress."""
        from torchlift.compress import compress

        fit(task, name="base")
        inputs = torch.cat([split(batch)[0] for batch in itertools.islice(fit.batches(), BATCHES)])
        targets = {"bytes": self.bytes, "latency": self.latency, "bits": self.bits}
        small = compress(task.model, inputs, **targets, progress=False)  # pyright: ignore[reportArgumentType]
        return Task(small.model, task.loss)
