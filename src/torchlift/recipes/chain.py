"""Recipes one after another, inside one budget."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from torchlift.core import Lift, Task, TorchliftError
from torchlift.recipes.budget import Part
from torchlift.recipes.once import Recipe, as_recipe
from torchlift.train import Fit


@dataclasses.dataclass(frozen=True)
class Chain:
    """task → recipe₁ → recipe₂ → …: each takes the last one's task and its share of the run's epochs.

    ``recipes``: names to recipes or single lifts, in order. ``shares``: names to parts of the budget (equal).
    (Lifts at the same time, not one after another, are ``torchlift.chain``.)
    """

    recipes: Mapping[str, Recipe | Lift]
    shares: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        if not self.recipes:
            raise TorchliftError("Chain needs at least one recipe: Chain({'prune': ..., 'polish': ...}).")
        if self.shares is not None and set(self.shares) != set(self.recipes):
            names = f"{', '.join(self.recipes)}; got {', '.join(self.shares)}"
            raise TorchliftError(f"Chain's shares need one part for each of {names}.")

    def __call__(self, task: Task, fit: Fit) -> Task:
        """All recipes in turn."""
        shares: Mapping[str, Any] = self.shares or dict.fromkeys(self.recipes, 1.0)
        total = sum(shares.values())
        for name, recipe in self.recipes.items():
            task = as_recipe(recipe)(task, Part(fit, shares[name] / total, name))
        return task
