"""What is worth a trial on a model, given a wish: plain training, better training, smaller models, chains."""

import warnings
from collections.abc import Mapping
from typing import Any

from torchlift.core import Lift, Task
from torchlift.errors import machine_fault, one_line
from torchlift.experiments.best_of import suggestions
from torchlift.experiments.constraints import Wish
from torchlift.methods.recipe import Recipe, RecipeLike, as_recipe
from torchlift.recipes import Chain, ChannelPruning, LayerPruning, MagnitudePruning, Plain, Smol
from torchlift.train import rng
from torchlift.train.run.checks import DryRun
from torchlift.train.run.names import named_recipe

PLAIN = "plain"
MARGIN = 0.97
"""Of the wish for bytes, asked of a recipe: the file also says what the network computes."""


def portfolio(task: Task, wish: Wish) -> dict[str, Recipe]:
    """Candidates by name, those that serve the wish first; plain always first of all."""
    better = {
        n: as_recipe(c.recipe) for n, c in suggestions(task.model).items() if c.recipe and not c.optimizer
    }
    bits = Smol(bytes=MARGIN * wish.bytes) if wish.bytes is not None else Smol(bits=3.0)
    half = {"first": 0.5, "bits": 0.5}
    small: dict[str, Recipe] = {"bits": bits}
    for name, recipe in better.items():
        small[f"{name} → bits"] = Chain({"first": recipe, "bits": bits}, half)
    small["channels → bits"] = Chain({"first": ChannelPruning(ratio=0.5), "bits": bits}, half)
    fast: dict[str, Recipe] = {"channels": ChannelPruning(ratio=0.5), "layers": LayerPruning()}
    if wish.latency is not None:
        fast |= {"more channels": ChannelPruning(ratio=0.75), "fewer channels": ChannelPruning(ratio=0.25)}
    sparse: dict[str, Recipe] = {"sparse": MagnitudePruning(sparsity=0.9, steps=4)}
    if wish.bytes is None:
        sparse["fewer bits"] = Smol(bits=2.0)
        sparse["sparse → bits"] = Chain({"first": sparse["sparse"], "bits": bits}, half)
    wanted = (fast | small | better) if wish.latency is not None else (small | better | fast)
    return {PLAIN: Plain()} | wanted | sparse


def accepted(
    given: Mapping[str, str | RecipeLike | Lift | None] | None,
    task: Task,
    wish: Wish,
    train: Any,
    batch_size: int,
    seed: int,
) -> tuple[dict[str, Recipe], dict[str, str]]:
    """The candidates that are for this model, and the reasons of the others."""
    if given is None:
        candidates = portfolio(task, wish)
    else:
        candidates = {PLAIN: as_recipe(None)} | {n: as_recipe(named_recipe(r)) for n, r in given.items()}
    kept: dict[str, Recipe] = {}
    dropped: dict[str, str] = {}
    look = DryRun(train, batch_size)
    for name, recipe in candidates.items():
        reason = refused(recipe, task, look, seed)
        if reason is None or name == PLAIN:
            kept[name] = recipe
        else:
            dropped[name] = reason
    return kept, dropped


def refused(recipe: Recipe, task: Task, look: DryRun, seed: int) -> str | None:
    """Why a recipe is not for this model, whatever it raises when it is asked."""
    with rng.scope(seed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return recipe.accepts(task, look)
        except Exception as error:  # a candidate can never take the search down
            if machine_fault(error):
                raise
            return one_line(error)
