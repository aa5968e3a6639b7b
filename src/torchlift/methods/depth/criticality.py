"""Is a network at a critical point, and is it one of a shallower network?"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from torchlift.analyze.curvature import CRITICAL, Inertia, spectrum
from torchlift.analyze.lifting import is_lifted
from torchlift.analyze.neurons import linearity
from torchlift.core import Batch, Problem, Task
from torchlift.errors import TorchliftError
from torchlift.loss import inputs_and_target
from torchlift.methods.depth.reduce import reduced


@dataclasses.dataclass(frozen=True)
class Stall:
    """A stretch of a training in which the loss hardly falls, before it falls on."""

    start: int
    end: int
    loss: float


@dataclasses.dataclass(frozen=True)
class Criticality:
    """What :func:`critical` found; ``bool()`` says whether the point is lifted from a shallower network."""

    loss: float
    gradient: float
    """The largest entry."""
    linearity: Mapping[str, float]
    """How linear the least linear neuron of each layer is on the data, |ρ| ≤ 1."""
    inertia: Inertia | None
    """Of the Hessian; None beyond ``largest`` parameters."""
    depth: tuple[int, int]
    """Layers that bend, and those that are left when linear ones are merged."""
    merged: tuple[str, ...]
    """The layers that were merged into the next."""
    shallow: nn.Module
    """What is left."""
    shallow_loss: float
    shallow_gradient: float
    lifted: bool
    """Whether the network is a lifted point of ``shallow`` on the data, exactly (Definition 4.2)."""
    stalls: tuple[Stall, ...]
    """Of the training, where its history was given."""
    tolerance: float

    @property
    def is_critical(self) -> bool:
        """Whether the gradient vanishes, to the tolerance."""
        return self.gradient <= self.tolerance

    def __bool__(self) -> bool:
        return self.is_critical and bool(self.merged) and self.shallow_gradient <= self.tolerance

    def __str__(self) -> str:
        before, after = self.depth
        what = "critical" if self.is_critical else "not critical"
        lines = [f"loss {self.loss:.4g}, gradient {self.gradient:.2g}: {what}"]
        if self.inertia is not None:
            lines.append("curvature: {} up, {} down, {} flat".format(*self.inertia))
        if not self.merged:
            return "\n".join([*lines, f"none of {before} layers that bend is linear on the data"])
        lines.append(
            f"{before - after} of {before} layers are linear on the data; merged: "
            f"loss {self.shallow_loss:.4g}, gradient {self.shallow_gradient:.2g}"
        )
        lifted = f"lifted from a network with {after} layers that bend" if self else "not lifted"
        return "\n".join([*lines, lifted])


def critical(
    model: nn.Module,
    data: Batch,
    *,
    loss: Any = "mse",
    threshold: float = 0.999,
    tolerance: float = CRITICAL,
    history: Sequence[Mapping[str, Any]] | None = None,
    largest: int = 1000,
) -> Criticality:
    """Whether a network is at a critical point, and whether that is one of a shallower network.

    Bai et al. (2024), Remark 5.1: layers whose linearity on the data reaches ``threshold`` are merged into
    the next; if the network was at a critical point, a gradient below ``tolerance``, and what is left is too,
    the point is lifted from it. ``model`` is a network with its ``loss``, or a problem with its own; ``data``
    a batch. ``history``: that of the training, in which stalls are looked for. Up to ``largest`` parameters
    the inertia of the Hessian is computed.
    """
    task = model if isinstance(model, Problem) else Task(model, loss)
    body = task.body()
    if body is None:
        raise TorchliftError("critical needs the model of a problem: pass the model and its loss.")
    x, size = inputs_and_target(data)[0], sum(p.numel() for p in body.parameters())
    done = reduced(body, x, threshold)
    small = Task(done.model, task.loss if isinstance(task, Task) else loss)
    value, slope = evaluated(task, data)
    small_value, small_slope = evaluated(small, data)
    return Criticality(
        loss=value,
        gradient=slope,
        linearity=linearity(body, x),
        inertia=spectrum(task, data).inertia if size <= largest else None,
        depth=done.depth,
        merged=done.merged,
        shallow=done.model,
        shallow_loss=small_value,
        shallow_gradient=small_slope,
        lifted=bool(done.merged) and is_lifted(body, done.model, x),
        stalls=stalls([float(row["train_loss"]) for row in history or ()]),
        tolerance=tolerance,
    )


def evaluated(task: Problem, data: Batch) -> tuple[float, float]:
    """The loss, and the largest entry of its gradient."""
    value = task(data)
    wanted = [p for p in task.parameters() if p.requires_grad]
    slopes = torch.autograd.grad(value, wanted, allow_unused=True, materialize_grads=True)
    return float(value.detach()), max(float(slope.abs().max()) for slope in slopes)


def stalls(
    losses: Sequence[float], factor: float = 1.3, fall: float = 0.02, later: float = 0.2
) -> tuple[Stall, ...]:
    """Stretches in which the loss falls by less than ``fall`` while the time grows by ``factor``.

    What does not fall by ``later`` afterwards is an end, not a stall.
    """
    stretches: list[Stall] = []
    start = 2
    while start < 0.9 * len(losses):
        end = start
        while end + 1 < len(losses) and losses[end + 1] > (1 - fall) * losses[start]:
            end += 1
        if end >= int(start * factor) + 1:
            middle = losses[(start + end) // 2]
            if losses[-1] < (1 - later) * middle:
                stretches.append(Stall(start, end, middle))
            start = end
        start += 1
    return tuple(stretches)
