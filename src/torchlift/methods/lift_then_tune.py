"""Any sparsifying lift as a recipe: lift, fit, project, fine-tune."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from torchlift.core import Fit, Lift, Problem, Task
from torchlift.methods.recipe import Recipe


@dataclasses.dataclass(frozen=True)
class LiftThenTune(Recipe):
    """min F(u) over a lift; back to w; then w again, its zeros frozen, for a part of the budget.

    The way all rivals of continuous sparsification are run: the same phases at the same cost. ``groups`` are
    the optimizer groups of the lifted phase.
    """

    lift: Lift
    finetune: float = 0.25
    finetune_rate: float = 1.0
    groups: Mapping[str, Mapping[str, Any]] | None = None

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Two fits with a projection between them."""
        lifted = fit.lift(self.lift, task)
        fit(lifted, name="lifted", share=1 - self.finetune, groups=self.groups)
        small: Problem = self.lift.project(lifted, fit)
        assert isinstance(small, Task)
        fit(small, name="finetune", share=self.finetune, rate=self.finetune_rate)
        return small

    def lifts(self) -> Iterable[Lift]:
        """The one."""
        return (self.lift,)

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """What the lift says."""
        return self.lift.accepts(task, fit)
