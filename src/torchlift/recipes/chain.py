"""Recipes one after another, inside one budget."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import nn

from torchlift.core import Fit, Lift, Task
from torchlift.deploy.measuring import file_size
from torchlift.errors import TorchliftError
from torchlift.recipes.tools.along import Along
from torchlift.recipes.tools.recipe import Recipe, RecipeLike, as_recipe
from torchlift.train import DurableFit


def count(model: nn.Module) -> int:
    """Parameters that are not zero."""
    return sum(int(p.count_nonzero()) for p in model.parameters())


@dataclasses.dataclass(frozen=True)
class Chain(Recipe):
    """task → recipe₁ → recipe₂ → …: each takes the last one's task and its share of the run's epochs.

    ``recipes``: names to recipes or single lifts, in order. ``shares``: names to parts of the budget (equal).
    ``restart=False``: all fits follow the run's schedule once, one after another; by default each starts it
    anew, which anneals as often as there are fits. The report shows what each stage cost and did.
    (Lifts at the same time, not one after another, are ``torchlift.chain``.)
    """

    recipes: Mapping[str, RecipeLike | Lift]
    shares: Mapping[str, float] | None = None
    restart: bool = True

    def __post_init__(self) -> None:
        if not self.recipes:
            raise TorchliftError("Chain needs at least one recipe: Chain({'prune': ..., 'polish': ...}).")
        if self.shares is not None and set(self.shares) != set(self.recipes):
            names = f"{', '.join(self.recipes)}; got {', '.join(self.shares)}"
            raise TorchliftError(f"Chain's shares need one part for each of {names}.")

    def __call__(self, task: Task, fit: Fit) -> Task:
        """All recipes in turn; each is asked whether it takes what the last one left."""
        shares: Mapping[str, Any] = self.shares or dict.fromkeys(self.recipes, 1.0)
        total, inner = sum(shares.values()), fit if self.restart else Along(fit)
        for name, step in self.recipes.items():
            recipe, part = as_recipe(step), inner.branch(name, shares[name] / total)
            reason = recipe.accepts(task, part)
            if reason is not None:
                raise TorchliftError(f"Chain stops at {name!r}: {reason}")
            task = recipe(task, part)
            if isinstance(fit, DurableFit):
                fit.stage(name, task, parameters=count(task.model), file_bytes=file_size(task.model))
        return task

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """What the first recipe says: the others depend on what it makes."""
        return as_recipe(next(iter(self.recipes.values()))).accepts(task, fit)
