"""Any sparsifying lift as a recipe: lift, fit, project, fine-tune."""

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

from torchlift.core import Lift, Problem, Task
from torchlift.train import Fit


@dataclasses.dataclass(frozen=True)
class Lifted:
    """min F(u) over a lift; back to w; then w again, its zeros held, for a part of the budget.

    The way all rivals of continuous sparsification are run: the same phases at the same cost. ``groups`` are
    the optimiser groups of the lifted phase.
    """

    lift: Lift
    finetune: float = 0.25
    finetune_rate: float = 1.0
    groups: Mapping[str, Mapping[str, Any]] | None = None

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Two fits with a projection between them."""
        lifted = self.lift.lift(task)
        fit(lifted, name="lifted", share=1 - self.finetune, groups=self.groups)
        small: Problem = self.lift.project(lifted, fit)
        assert isinstance(small, Task)
        warn_of_empty(small)
        fit(small, name="finetune", share=self.finetune, groups={"*": {"lr_factor": self.finetune_rate}})
        return small


def warn_of_empty(task: Task) -> None:
    """A weight that is zero everywhere cannot be told from a new one: it would train as if never pruned."""
    for name, parameter in task.named_parameters():
        if parameter.ndim > 1 and not bool(parameter.any()):
            warnings.warn(f"all of {name} was dropped, and may return: lower the strength.", stacklevel=3)
