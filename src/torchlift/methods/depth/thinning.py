"""A task with one layer less, and again: by linearity, by removal, by alignment."""

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn

from torchlift.analyze.alignment import cka
from torchlift.core import Fit, Task
from torchlift.deploy.measuring import measure
from torchlift.loss import inputs_and_target
from torchlift.methods.depth.reduce import depth, reduced
from torchlift.methods.depth.units import Unit, ends, removable_units, without_unit
from torchlift.tree import each

ThinningCriterion = Literal["linearity", "removal", "cka"]
CRITERIA = ("linearity", "removal", "cka")


@dataclasses.dataclass(frozen=True)
class Thinning:
    """Which layer goes next, on the inputs ``x``."""

    criterion: ThinningCriterion
    x: Any
    fit: Fit
    grow: bool = False

    def sequence(self, task: Task) -> Iterator[Task]:
        """The task, then with one layer less, and so on until nothing more can go."""
        while True:
            yield task
            smaller = self.one_less(task)
            if smaller is None:
                return
            task = smaller

    def after(self, task: Task, number: int, threshold: float) -> Task:
        """The task without so many layers; with −1, without those whose linearity reaches the threshold."""
        if number < 0:
            return Task(reduced(task.model, self.x, threshold, grow=self.grow).model, task.loss)
        return next(small for removed, small in enumerate(self.sequence(task)) if removed == number)

    def one_less(self, task: Task) -> Task | None:
        """Without the layer that the criterion names; None if none can go."""
        if self.criterion == "linearity":
            return self.merged(task)
        removable = removable_units(task.model, self.x)
        if not removable:
            return None
        if self.criterion == "cka":
            return self.most_alike(task, removable)
        smaller = (Task(without_unit(task.model, unit), task.loss) for unit in removable)
        return min(smaller, key=lambda one: self.fit.evaluate(one).loss)

    def merged(self, task: Task) -> Task | None:
        """With the most linear layer merged into the next."""
        before = depth(task.model, self.x)
        done = reduced(task.model, self.x, layers=before - 1, grow=self.grow)
        return Task(done.model, task.loss) if done.depth[1] < before else None

    def most_alike(self, task: Task, removable: list[Unit]) -> Task:
        """Without the unit whose output is most like its input."""
        few = each(lambda t: t[:256], self.x)
        best = max(removable, key=lambda unit: cka(*ends(task.model, unit, few)))
        return Task(without_unit(task.model, best), task.loss)

    def reasons(self, task: Task) -> str:
        """Why the rest must stay."""
        if self.criterion != "linearity":
            return "No other block has an output of its input's shape."
        kept = reduced(task.model, self.x, layers=0, grow=self.grow).kept
        return " ".join(f"{name}: {why}." for name, why in kept.items())


def inputs(fit: Fit, samples: int) -> Any:
    """The first training inputs."""
    collected: list[Any] = []
    count = 0
    for batch in fit.batches():
        x = inputs_and_target(batch)[0]
        collected.append(x)
        count += len(x if isinstance(x, Tensor) else next(iter(x.values())))
        if count >= samples:
            break
    if isinstance(collected[0], Tensor):
        return torch.cat(collected)[:samples]
    return {key: torch.cat([piece[key] for piece in collected])[:samples] for key in collected[0]}


def latency(model: nn.Module, x: Any) -> float:
    """Milliseconds of a call on one sample."""
    return measure(model, each(lambda t: t[:1], x)).latency_ms
