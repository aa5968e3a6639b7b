"""A lift as a recipe: lift → fit → project."""

import dataclasses
from collections.abc import Callable
from typing import Any, cast

from torchlift.core import Lift, Problem, Task, TorchliftError
from torchlift.recipes.plain import Plain
from torchlift.train import Fit

Recipe = Callable[[Task, Fit], Task]


@dataclasses.dataclass(frozen=True)
class Once:
    """min f(w) ─lift→ min F(u) ─fit→ u* ─project→ w*, once; a projection that learns gets half the budget."""

    lift: Lift

    def __call__(self, task: Task, fit: Fit) -> Task:
        """The projected task."""
        share = 0.5 if self.lift.learns else 1.0

        def rest(problem: Problem, **settings: Any) -> Any:
            return fit(problem, **{"share": share} | settings)

        lifted = self.lift.lift(task)
        fit(lifted, name="lifted", share=share, preview=None if self.lift.learns else self.lift.project)
        return cast(Task, self.lift.project(lifted, rest))


def as_recipe(recipe: Recipe | Lift | None) -> Recipe:
    """A recipe from a recipe, a single lift, or nothing (plain training)."""
    if recipe is None:
        return Plain()
    if isinstance(recipe, Lift):
        return Once(recipe)
    if not callable(recipe):
        raise TorchliftError(f"a recipe is a lift or callable(task, fit) -> task; got {recipe!r}.")
    return recipe
