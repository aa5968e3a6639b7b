"""Controls: what a method does without the thing it is named after."""

import dataclasses

from torchlift.core import Fit, Task
from torchlift.train.until import Rule


@dataclasses.dataclass(frozen=True)
class SameSchedule:
    """The phases of neural lifting, their learning rates and stopping rules, without a lifter."""

    lrs: tuple[float, ...]
    until: tuple[Rule, ...]

    def __call__(self, task: Task, fit: Fit) -> Task:
        """One plain fit after another."""
        for number, (lr, rule) in enumerate(zip(self.lrs, self.until, strict=True), start=1):
            fit(task, name=f"rate {number}", lr=lr, until=rule.scaled(1.0))
        return task
