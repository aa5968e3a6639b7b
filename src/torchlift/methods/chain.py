"""Recipes one after another, inside one budget."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import cast

from torch import nn

from torchlift.core import Fit, Lift, Span, Task
from torchlift.deploy.measuring import file_size
from torchlift.errors import TorchliftError
from torchlift.methods.inside import delivered
from torchlift.methods.plain import Plain
from torchlift.methods.recipe import OneLift, Recipe, RecipeLike, all_lifts, as_recipe

Stage = RecipeLike | Lift


@dataclasses.dataclass(frozen=True, init=False)
class Chain(Recipe):
    """task → recipe₁ → recipe₂ → …: each takes the last one's task and its share of the run's epochs.

    ``Chain(a, b)``, or ``Chain({"prune": a, "polish": b})`` to name the stages: recipes or single lifts, in
    order. ``shares``: parts of the budget (equal), in order or by name. ``restart=False``: all fits follow
    the run's schedule once, one after another; by default each starts it again, which anneals as often as
    there are fits. All stages in the coordinates of one lift: ``Inside(lift, Chain(…))``. The report shows
    what each stage cost and did.
    (Lifts at the same time, not one after another, are ``torchlift.chain``.)
    """

    recipes: Mapping[str, Stage]
    shares: Mapping[str, float] | None
    restart: bool

    def __init__(
        self,
        recipes: Mapping[str, Stage] | Sequence[Stage] | Stage = (),
        *more: Stage | Mapping[str, float],
        shares: Mapping[str, float] | Sequence[float] | None = None,
        restart: bool = True,
    ) -> None:
        if isinstance(recipes, Mapping | Sequence):
            if shares is None and len(more) == 1 and isinstance(more[0], Mapping):
                shares, more = more[0], ()
            if more:
                raise TorchliftError("Chain takes recipes one by one, or one mapping or list of them.")
            named = dict(recipes) if isinstance(recipes, Mapping) else by_kind(recipes)
        else:
            named = by_kind([recipes, *cast(tuple[Stage, ...], more)])
        if not named:
            raise TorchliftError("Chain needs at least one recipe: Chain(pruning, polishing).")
        by_name = shares if shares is None or isinstance(shares, Mapping) else in_order(shares, named)
        if by_name is not None and set(by_name) != set(named):
            names = f"{', '.join(named)}; got {', '.join(by_name)}"
            raise TorchliftError(f"Chain's shares need one for each of {names}.")
        object.__setattr__(self, "recipes", named)  # frozen
        object.__setattr__(self, "shares", by_name)
        object.__setattr__(self, "restart", restart)

    @property
    def title(self) -> str:
        """The stages, in order."""
        return " → ".join(as_recipe(step).title for step in self.recipes.values())

    def __call__(self, task: Task, fit: Fit) -> Task:
        """All recipes in turn; each checks that it accepts what the last one left."""
        for name, (share, span) in self.stages().items():
            recipe, branch = as_recipe(self.recipes[name]), fit.branch(name, share, span)
            reason = recipe.accepts(task, branch)
            if reason is not None:
                raise TorchliftError(f"Chain stops at {name!r}: {reason}")
            task = recipe(task, branch)
            out = delivered(task).model
            fit.report(name, task, parameters=nonzero(out), file_bytes=file_size(out))
        return task

    def stages(self) -> dict[str, tuple[float, Span | None]]:
        """Each stage's share of the budget and, where all follow one schedule, its stretch of it."""
        shares: Mapping[str, float] = self.shares or dict.fromkeys(self.recipes, 1.0)
        total, before = sum(shares.values()), 0.0
        stages: dict[str, tuple[float, Span | None]] = {}
        for name in self.recipes:
            after = before + shares[name]
            stages[name] = shares[name] / total, None if self.restart else (before / total, after / total)
            before = after
        return stages

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """What the stages say, up to the first that leaves another model than it takes."""
        for name, stage in self.recipes.items():
            recipe = as_recipe(stage)
            reason = recipe.accepts(task, fit)
            if reason is not None or not leaves_structure(recipe):
                return None if reason is None else f"at {name!r}: {reason}"
        return None

    def lifts(self) -> list[Lift] | None:
        """Those of all stages."""
        return all_lifts(self.recipes.values())


def leaves_structure(recipe: Recipe) -> bool:
    """Whether a recipe delivers the model it takes with other values: no grids and no shapes of its own."""
    if isinstance(recipe, OneLift):
        return recipe.lift.reversible and not recipe.lift.reshapes
    return isinstance(recipe, Plain)


def nonzero(model: nn.Module) -> int:
    """Parameters that are not zero."""
    return sum(int(p.count_nonzero()) for p in model.parameters())


def by_kind(steps: Sequence[Stage]) -> dict[str, Stage]:
    """Stages under the names of their kinds; a second one of a kind is ``…-2``."""
    named: dict[str, Stage] = {}
    for step in steps:
        kind = getattr(step, "__name__", type(step).__name__)
        again = sum(name == kind or name.startswith(f"{kind}-") for name in named)
        named[f"{kind}-{again + 1}" if again else kind] = step
    return named


def in_order(shares: Sequence[float], named: Mapping[str, Stage]) -> dict[str, float]:
    """Shares by position as shares by name."""
    if len(shares) != len(named):
        raise TorchliftError(f"Chain's shares need one for each of {', '.join(named)}; got {len(shares)}.")
    return dict(zip(named, shares, strict=True))
