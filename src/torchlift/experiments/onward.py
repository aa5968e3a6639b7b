"""The winner of a search, trained on from what its trial delivered, whatever shape that has."""

import copy
import dataclasses
from pathlib import Path

from torchlift import deploy
from torchlift.core import Fit, Lift, Task
from torchlift.core.stored import forget
from torchlift.errors import TorchliftError
from torchlift.experiments.compressing import Compressing
from torchlift.methods.recipe import OneLift, Recipe, RecipeLike, as_recipe
from torchlift.recipes import Chain, ChannelPruning, LayerPruning, MagnitudePruning, Plain, Pooled, Smol

CUTS = ChannelPruning, LayerPruning, Pooled
"""What is done once: these change layers."""


@dataclasses.dataclass(frozen=True)
class Onward(Recipe):
    """w* = recipe(model of a file): the given model only says what a plain epoch costs."""

    file: Path
    recipe: Recipe

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Train the model of the file."""
        try:
            model = deploy.load(self.file)
        except TorchliftError:
            model = deploy.load(self.file, into=copy.deepcopy(task.model))
        forget(model)  # the recipe finds its own zeros and grids again
        device = next(task.model.parameters()).device
        return self.recipe(Task(model.to(device).train(), task.loss), fit)


def rest_of(recipe: RecipeLike | Lift | None) -> Recipe | None:
    """What is left of a recipe on a model whose layers it has already cut; None where it starts again.

    Of a chain, every stage but the cuts: better training goes on, then what makes the weights small.
    """
    stages = list(recipe.recipes.values()) if isinstance(recipe, Chain) else [as_recipe(recipe)]
    left = [stage for stage in stages if not isinstance(stage, CUTS)]
    if not all(map(goes_on, left)):
        return None
    return Chain(left) if len(left) > 1 else as_recipe(next(iter(left), None))


def goes_on(stage: RecipeLike | Lift) -> bool:
    """Whether a stage trains on from any weights, and keeps what they have learned."""
    if isinstance(stage, OneLift):
        return stage.lift.preserving
    if isinstance(stage, Lift):
        return stage.preserving
    if isinstance(stage, Compressing):
        return stage.training is None or goes_on(stage.training)
    return isinstance(stage, Smol | MagnitudePruning | Plain)
