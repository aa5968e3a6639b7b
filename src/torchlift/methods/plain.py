"""The control: train the model as it is."""

import dataclasses

from torchlift.core import Fit, Task
from torchlift.methods.recipe import Recipe, Started


@dataclasses.dataclass(frozen=True)
class Plain(Recipe):
    """min f(w), nothing lifted: the control every recipe is compared with, at equal cost."""

    def __call__(self, task: Task, fit: Fit) -> Task:
        """One fit over the whole budget."""
        fit(task, name="base")
        return task

    def start(self, task: Task, fit: Fit) -> Started:
        """A part of the fit."""
        return Started(self(task, fit), task)
