"""What a network is worth on validation data: accuracy, or a metric of the user."""

import dataclasses
from collections.abc import Callable
from typing import Any, SupportsFloat

import torch
from torch import nn

from torchlift.errors import TorchliftError
from torchlift.train.batches import source
from torchlift.tree import leaves, move


@dataclasses.dataclass(frozen=True, eq=False)
class ValidationMetric:
    """The mean over validation samples of ``metric(model, batch)``; accuracy where there is none."""

    valid: Any
    metric: Callable[[nn.Module, Any], float] | None
    device: torch.device

    @torch.no_grad()
    def __call__(self, model: nn.Module) -> float:
        """Higher is better."""
        total, count = 0.0, 0
        for batch in source(self.valid, 256, shuffle=False).ordered():
            batch = move(batch, self.device)
            size = len(next(leaves(batch)))
            value = (self.metric or accuracy)(model, batch)
            if not isinstance(value, SupportsFloat):
                raise TorchliftError(f"metric(model, batch) gives a number; got {value!r}.")
            total += size * float(value)
            count += size
        return total / max(count, 1)


def accuracy(model: nn.Module, batch: Any) -> float:
    """The part of samples whose largest output is the label."""
    from torchlift.loss import call, inputs_and_target, output

    x, y = inputs_and_target(batch)
    return float((output(call(model, x)).argmax(1) == y).float().mean())
