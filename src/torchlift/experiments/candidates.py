"""What is worth a trial on a model under its constraints: plain training, better training, smaller models."""

import warnings
from collections.abc import Mapping
from typing import Any

from torchlift.core import Task
from torchlift.errors import machine_fault, one_line
from torchlift.experiments.arm import AnyRecipe, Arm
from torchlift.experiments.best_of import suggestions
from torchlift.experiments.compressing import Compressing
from torchlift.experiments.constraints import Constraints
from torchlift.lifts import Normalize
from torchlift.methods.recipe import Recipe, as_recipe
from torchlift.recipes import Chain, ChannelPruning, LayerPruning, MagnitudePruning, Smol
from torchlift.train import rng
from torchlift.train.run.checks import DryRun

PLAIN = "plain"
MARGIN = 0.97
"""Of the bytes allowed, the target of a recipe: fine-tuning moves the size a little after it is met."""


def portfolio(task: Task, constraints: Constraints) -> dict[str, Arm]:
    """Candidates by name, those that serve the constraints first; plain always first of all."""
    better = {
        name: arm for name, arm in suggestions(task.model).items() if arm.recipe and arm.optimizer is None
    }
    size = target(constraints)
    bits = Smol(bits=3.0) if size is None else Smol(bytes=size)
    channels = ChannelPruning(ratio=0.5)
    firsts = {"norm": as_recipe(Normalize()), "channels": channels}
    firsts |= {name: as_recipe(arm.recipe) for name, arm in better.items() if name != "folded norm"}
    small: dict[str, Recipe] = {"bits": bits}
    small["compressed"] = compressing(constraints)
    small |= {f"{name} → bits": halves(first, bits) for name, first in firsts.items()}
    fast: dict[str, Recipe] = {"channels": channels, "layers": LayerPruning()}
    if constraints.latency is not None:
        fast |= {"more channels": ChannelPruning(ratio=0.75), "fewer channels": ChannelPruning(ratio=0.25)}
    sparse: dict[str, Recipe] = {"sparse": MagnitudePruning(sparsity=0.9, steps=4)}
    if constraints.bytes is None:
        sparse |= {"fewer bits": Smol(bits=2.0), "sparse → bits": halves(sparse["sparse"], bits)}
    smaller, faster, sparser = ({n: Arm(r) for n, r in some.items()} for some in (small, fast, sparse))
    wanted = (smaller | better | faster) if constraints.latency is None else (faster | smaller | better)
    return {PLAIN: Arm()} | wanted | sparser


def target(constraints: Constraints) -> int | None:
    """The bytes of a recipe's file, its card counted, so that it is within those that are allowed."""
    return None if constraints.bytes is None else int(MARGIN * constraints.bytes)


def compressing(constraints: Constraints) -> Compressing:
    """Plain training, then compression to what is allowed."""
    allowed = target(constraints)
    open_ = allowed is None and constraints.latency is None
    return Compressing(allowed, constraints.latency, 4 if open_ else None)


def halves(first: Recipe, bits: Recipe) -> Chain:
    """One recipe after the other, half of the budget each."""
    return Chain({"first": first, "bits": bits}, {"first": 0.5, "bits": 0.5})


def accepted(
    recipes: Mapping[str, AnyRecipe | Arm] | None,
    task: Task,
    constraints: Constraints,
    train: Any,
    batch_size: int,
    seed: int,
) -> tuple[dict[str, Arm], dict[str, str]]:
    """The candidates that are for this model, and the reasons of the others."""
    if recipes is None:
        candidates = portfolio(task, constraints)
    else:
        candidates = {PLAIN: Arm()} | {name: Arm.of(recipe) for name, recipe in recipes.items()}
    look = DryRun(train, batch_size)
    reasons = {name: refused(as_recipe(arm.recipe), task, look, seed) for name, arm in candidates.items()}
    kept = {name: arm for name, arm in candidates.items() if name == PLAIN or reasons[name] is None}
    return kept, {name: reason for name, reason in reasons.items() if reason is not None and name not in kept}


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
