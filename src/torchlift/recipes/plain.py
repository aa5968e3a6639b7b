"""The control: train the model as it is."""

import dataclasses

from torchlift.core import Task
from torchlift.train import Fit


@dataclasses.dataclass(frozen=True)
class Plain:
    """min f(w), nothing lifted: the control every recipe is held against, at equal cost."""

    def __call__(self, task: Task, fit: Fit) -> Task:
        """One fit over the whole budget."""
        fit(task, name="base")
        return task
