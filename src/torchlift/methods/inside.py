"""A whole recipe in the coordinates of a lift."""

import dataclasses
from collections.abc import Iterator
from typing import cast

from torchlift.core import Fit, Lift, Problem, Task, chain, nodes
from torchlift.errors import TorchliftError
from torchlift.methods.recipe import Recipe, RecipeLike, as_recipe


@dataclasses.dataclass(frozen=True)
class Inside(Recipe):
    """min f(w) ─lift→ recipe on F(u) ─project→ w*: all a recipe does happens in the coordinates u.

    ``lift`` replaces modules, as :class:`~torchlift.lifts.Normalize` and
    :class:`~torchlift.lifts.Standardize` do, and is left exactly at the very end. These two scale rows and
    shift biases alone, so that zeros the recipe makes survive the way back, and grids row by row.
    """

    lift: Lift
    recipe: RecipeLike | Lift

    def __post_init__(self) -> None:
        if not isinstance(self.lift, Lift):
            raise TorchliftError(
                f"Inside takes a lift, then a recipe: Inside(Normalize(), Smol()); got {self.lift!r:.60}."
            )
        as_recipe(self.recipe)

    @property
    def title(self) -> str:
        """The recipe's, and the lift it works inside."""
        return f"{as_recipe(self.recipe).title} inside {as_recipe(self.lift).title}"

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Lift, work, project."""
        small = as_recipe(self.recipe)(self.lifted(fit.lift(self.lift, task)), fit)
        return cast(Task, self.lift.project(small, fit))

    def trained_problems(self, task: Task, fit: Fit) -> list[tuple[Problem, float]]:
        """Those of the recipe on the lifted task."""
        return as_recipe(self.recipe).trained_problems(self.lifted(self.lift.lift(task, fit)), fit)

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """What the lift says, then the recipe of the lifted task."""
        reason = self.lift.accepts(task, fit)
        if reason is not None:
            return reason
        try:
            lifted = self.lifted(self.lift.lift(task, fit))
        except TorchliftError as error:
            return str(error)
        return as_recipe(self.recipe).accepts(lifted, fit)

    def lifts(self) -> Iterator[Lift] | None:
        """The lift, and those of the recipe on top of it."""
        inner = as_recipe(self.recipe).lifts()
        return None if inner is None else iter([self.lift, *(chain(self.lift, one) for one in inner)])

    def lifted(self, problem: Problem) -> Task:
        """A task, which recipes take; a lift of weights or of the objective leaves another problem."""
        if isinstance(problem, Task):
            return problem
        raise TorchliftError(
            f"Inside takes a lift that replaces modules, such as Normalize(); {self.lift!r} does not."
        )


def delivered(problem: Problem) -> Task:
    """The task as it would leave the coordinates it is in: every lift of its modules projected."""
    while lifts := [node.way_back for _, node in nodes(problem) if node.way_back is not None]:
        problem = lifts[0].project(problem)
    assert isinstance(problem, Task)
    return problem
