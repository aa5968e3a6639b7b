"""What every recipe promises of the model it delivers, checked once at the end of a run."""

import math

import torch
from torch import Tensor, nn

from torchlift.core import Batch, Task
from torchlift.errors import DivergedError, TorchliftError


def check_delivered(before: nn.Module, answer: Task, batch: Batch, who: str) -> None:
    """Errors unless weights and loss are finite and every frozen parameter came back bit for bit."""
    after = answer.model
    infinite = [name for name, weight in after.named_parameters() if not weight.isfinite().all()]
    if infinite:
        raise DivergedError(
            f"not finite in the delivered model: {first_few(infinite)}; lower the learning rate."
        )
    with torch.no_grad():
        loss = float(answer.task_loss(batch))
    if not math.isfinite(loss):
        raise DivergedError(f"the loss of the delivered model is {loss}: lower the learning rate.")
    changed = changed_frozen(before, after)
    if changed:
        raise TorchliftError(
            f"{who} changed frozen parameters ({first_few(changed)}): exclude their layers, or unfreeze them."
        )


def changed_frozen(before: nn.Module, after: nn.Module) -> list[str]:
    """Frozen parameters that are not in the model with their values, under whatever name."""
    kept = dict(after.named_parameters(remove_duplicate=False))
    others = list(kept.values())
    return [
        name
        for name, weight in before.named_parameters()
        if not weight.requires_grad
        and not any(equal_tensors(weight, other) for other in ([kept[name]] if name in kept else others))
    ]


def equal_tensors(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same type, shape and values."""
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)


def first_few(names: list[str]) -> str:
    """The first few names."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
