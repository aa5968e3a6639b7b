"""What a recipe is: (task, fit) -> task, and a word on which tasks it is for."""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, cast

from torchlift.core import Fit, Lift, Task, preset
from torchlift.errors import TorchliftError
from torchlift.methods.begun import Begun

L = TypeVar("L", bound=Lift)

RecipeLike = Callable[[Task, Fit], Task]
"""A recipe, or any function of that signature."""


class Recipe(abc.ABC):
    """An algorithm box: a value with hyper-parameters, called with the task and a fit."""

    @abc.abstractmethod
    def __call__(self, task: Task, fit: Fit) -> Task:
        """The projected task."""

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """None if the recipe is for this task, else the reason why not."""
        del task, fit
        return None

    def begin(self, task: Task, fit: Fit) -> Begun | None:
        """The recipe on a part of the budget, to be carried on; None if it only runs as a whole."""
        del task, fit
        return None

    def carry_on(self, begun: Begun, fit: Fit) -> Begun:
        """Further from where it stands: by default the recipe again, on what it has made."""
        task = self(begun.task, fit)
        return Begun(task, task)


class OneLift(Recipe):
    """min f(w) ─lift→ min F(u) ─fit→ u* ─project→ w*; a projection that learns gets half the budget."""

    lift: Lift
    previews: ClassVar[bool] = False
    """Whether the history shows, each epoch, what the problem would be if projected then."""

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Lift, fit, project."""
        lift = self.lift
        lifted = fit.lift(lift, task)
        share = 0.5 if lift.learns else 1.0
        preview = lift.project if self.previews and not lift.learns else None
        fit(lifted, name="lifted", share=share, preview=preview)
        return cast(Task, lift.project(lifted, preset(fit, share=share)))

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """What the lift says."""
        return self.lift.accepts(task, fit)

    def begin(self, task: Task, fit: Fit) -> Begun | None:
        """Lift and fit; a projection that learns needs the whole budget to be planned."""
        if self.lift.learns:
            return None
        return self.carry_on(Begun(task, fit.lift(self.lift, task)), fit)

    def carry_on(self, begun: Begun, fit: Fit) -> Begun:
        """The same problem, with a new optimizer."""
        fit(begun.problem, name="lifted")
        return Begun(cast(Task, self.lift.project(begun.problem)), begun.problem)


@dataclasses.dataclass(frozen=True)
class Once(OneLift):
    """A lift as a recipe."""

    lift: Lift
    previews: ClassVar[bool] = True


@dataclasses.dataclass(frozen=True)
class Custom(Recipe):
    """A function ``(task, fit) -> task`` as a recipe."""

    function: RecipeLike

    def __call__(self, task: Task, fit: Fit) -> Task:
        """What the function makes of the task."""
        return self.function(task, fit)


def made(kind: type[L], recipe: object, **changes: Any) -> L:
    """A lift from a recipe's fields of the same names: the one way fields are handed on."""
    names = {field.name for field in dataclasses.fields(cast(Any, kind)) if field.init}
    own = {f.name: getattr(recipe, f.name) for f in dataclasses.fields(cast(Any, recipe)) if f.name in names}
    return kind(**own | changes)


def as_recipe(recipe: RecipeLike | Lift | None) -> Recipe:
    """A recipe from a recipe, a single lift, a function, or nothing (plain training)."""
    if recipe is None:
        from torchlift.methods.plain import Plain  # which is a recipe itself

        return Plain()
    if isinstance(recipe, Recipe):
        return recipe
    if isinstance(recipe, Lift):
        return Once(recipe)
    if not callable(recipe) or isinstance(recipe, type):
        raise TorchliftError(f"a recipe is a lift or callable(task, fit) -> task; got {recipe!r}.")
    return Custom(recipe)
