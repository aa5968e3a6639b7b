"""What a recipe is: (task, fit) -> task, and a word on which tasks it is for."""

import abc
import dataclasses
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from torchlift.core import Fit, Lift, Problem, Task
from torchlift.errors import TorchliftError

L = TypeVar("L", bound=Lift)

RecipeLike = Callable[[Task, Fit], Task]
"""A recipe, or any function of that signature."""


@dataclasses.dataclass(frozen=True)
class Started:
    """How far a recipe has come on a part of its budget: what it would deliver now, and what it trains on."""

    task: Task
    problem: Problem
    """In the coordinates it is trained in; every part has an optimizer of its own."""


class Recipe(abc.ABC):
    """An algorithm box: a value with hyper-parameters, called with the task and a fit."""

    @abc.abstractmethod
    def __call__(self, task: Task, fit: Fit) -> Task:
        """The projected task."""

    @property
    def name(self) -> str:
        """What messages call the recipe."""
        return type(self).__name__

    @property
    def title(self) -> str:
        """What reports call the recipe: its name in words."""
        return in_words(self.name)

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """None if the recipe is for this task, else the reason why not."""
        del task, fit
        return None

    def lifts(self) -> Iterable[Lift] | None:
        """The lifts in whose coordinates it trains, as far as they add some; None where nobody can know."""
        return ()

    def trained_problems(self, task: Task, fit: Fit) -> list[tuple[Problem, float]]:
        """The problems it trains, with their parts of the steps: a step's time is measured on them."""
        del fit
        return [(task, 1.0)]

    def start(self, task: Task, fit: Fit) -> Started | None:
        """The recipe on a part of the budget, to be resumed; None if it only runs as a whole."""
        del task, fit
        return None

    def resume(self, started: Started, fit: Fit) -> Started:
        """Further from where it stands: by default the recipe again, on what it has made."""
        task = self(started.task, fit)
        return Started(task, task)


@dataclasses.dataclass(frozen=True, repr=False)
class OneLift(Recipe):
    """min f(w) ─lift→ min F(u) ─fit→ u* ─project→ w*: a lift as a recipe.

    A projection that learns gets half the budget.
    """

    lift: Lift

    @property
    def title(self) -> str:
        """The lift's name in words."""
        return in_words(type(self.lift).__name__)

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Lift, fit, project."""
        lift = self.lift
        lifted = fit.lift(lift, task)
        share = 0.5 if lift.learns else 1.0
        preview = None if lift.exact or lift.learns else lift.project
        fit(lifted, name="lifted", share=share, preview=preview, **lift.settings)
        return cast(Task, lift.project(lifted, fit.using(share=share)))

    @property
    def name(self) -> str:
        """The lift's."""
        return type(self.lift).__name__

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """What the lift says."""
        return self.lift.accepts(task, fit)

    def lifts(self) -> Iterable[Lift]:
        """The one."""
        return (self.lift,)

    def trained_problems(self, task: Task, fit: Fit) -> list[tuple[Problem, float]]:
        """The lifted problem."""
        return [(self.lift.lift(task, fit), 1.0)]

    def start(self, task: Task, fit: Fit) -> Started | None:
        """Lift and fit; a projection that learns needs the whole budget to be planned."""
        if self.lift.learns:
            return None
        return self.train(fit.lift(self.lift, task), fit)

    def resume(self, started: Started, fit: Fit) -> Started:
        """The same problem with a new optimizer; lifted again where the lift measures the problem."""
        problem = fit.lift(self.lift, started.task) if self.lift.measures else started.problem
        return self.train(problem, fit)

    def train(self, lifted: Problem, fit: Fit) -> Started:
        """Fit the lifted problem, and project a copy of it."""
        fit(lifted, name="lifted", **self.lift.settings)
        return Started(cast(Task, self.lift.project(lifted)), lifted)

    def __repr__(self) -> str:
        return repr(self.lift)


@dataclasses.dataclass(frozen=True)
class FunctionRecipe(Recipe):
    """A function ``(task, fit) -> task`` as a recipe."""

    function: RecipeLike

    @property
    def title(self) -> str:
        """The function's name in words."""
        return in_words(getattr(self.function, "__name__", type(self.function).__name__))

    def __call__(self, task: Task, fit: Fit) -> Task:
        """What the function makes of the task."""
        return self.function(task, fit)

    def lifts(self) -> None:
        """A function says nothing of its lifts."""


def lift_from_fields(kind: type[L], recipe: object, **changes: Any) -> L:
    """A lift from a recipe's fields of the same names: the one way fields are handed on."""
    names = {field.name for field in dataclasses.fields(cast(Any, kind)) if field.init}
    own = {f.name: getattr(recipe, f.name) for f in dataclasses.fields(cast(Any, recipe)) if f.name in names}
    return kind(**own | changes)


def all_lifts(recipes: Iterable[RecipeLike | Lift | None]) -> list[Lift] | None:
    """The lifts of several recipes; None where one of them cannot say."""
    each = [as_recipe(recipe).lifts() for recipe in recipes]
    return None if None in each else [lift for lifts in each for lift in lifts or ()]


def in_words(name: str) -> str:
    """ChannelPruning → channel pruning; a name of one word stays as it is."""
    words = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)
    return " ".join(word.lower() for word in words) if len(words) > 1 else name


def as_recipe(recipe: RecipeLike | Lift | None) -> Recipe:
    """A recipe from a recipe, a single lift, a function, or nothing (plain training)."""
    if recipe is None:
        from torchlift.methods.plain import Plain  # which is a recipe itself

        return Plain()
    if isinstance(recipe, Recipe):
        return recipe
    if isinstance(recipe, Lift):
        return OneLift(recipe)
    if not callable(recipe) or isinstance(recipe, type):
        raise TorchliftError(f"a recipe is a lift or callable(task, fit) -> task; got {recipe!r}.")
    return FunctionRecipe(recipe)
