"""What is worth a trial on a model under its constraints: plain training, better training, smaller models."""

import itertools
import warnings
from collections.abc import Mapping
from typing import Any

from torch import nn

from torchlift.core import Lift, Task
from torchlift.errors import machine_fault, one_line
from torchlift.experiments.arm import AnyRecipe, Arm, check_models
from torchlift.experiments.best_of import suggestions
from torchlift.experiments.compressing import Compressing
from torchlift.experiments.constraints import Constraints
from torchlift.experiments.step_times import differ_in_rates
from torchlift.lifts import Normalize
from torchlift.methods.recipe import Recipe, RecipeLike, as_recipe
from torchlift.recipes import Chain, ChannelPruning, LayerPruning, MagnitudePruning, Smol
from torchlift.train import rng
from torchlift.train.run.checks import DryRun

PLAIN = "plain"
BETTER = 3
"""So many ways of better training, the likeliest to win."""
PACKED, CUT, SPARSE = 0.85, 0.2, 0.1
"""Of the bytes of all float weights, the least of a file: of all, of half of the channels, of a tenth."""
MARGIN = 0.99
"""Of the bytes allowed, the target of a recipe: a card differs by some bytes."""


def portfolio(task: Task, constraints: Constraints) -> dict[str, Arm]:
    """Candidates by name: plain, then the likeliest winners under the constraints, for not all may be tried.

    Under ``bytes`` only those whose file can be so small: a search has few trials, and they should be long.
    """
    size = target(constraints)
    bits = Smol(bits=3.0) if size is None else Smol(bytes=size)
    channels, sparse = ChannelPruning(ratio=0.5), MagnitudePruning(sparsity=0.9, steps=4)
    better = dict(itertools.islice(ways_of_training(task.model).items(), BETTER))
    first = dict(itertools.islice(better.items(), 1))
    cut = {f"{name} → channels → bits": before(arm, channels, bits) for name, arm in first.items()}
    after = {
        f"{name} → compressed": Arm(compressing(constraints, arm.recipe), arm.optimizer, arm.rate)
        for name, arm in first.items()
    }
    trained = {f"{name} → bits": before(arm, bits) for name, arm in better.items()}
    small = {
        **cut,
        **after,
        **dict(itertools.islice(trained.items(), 1)),
        "channels → bits": Arm(in_turn(channels, bits)),
        "norm → bits": Arm(in_turn(Normalize(), bits)),
        "compressed": Arm(compressing(constraints)),
        "bits": Arm(bits),
        **trained,
    }
    fast = {"channels": Arm(channels)}
    if constraints.latency is not None:
        fast |= {
            n: Arm(ChannelPruning(ratio=r)) for n, r in (("more channels", 0.75), ("fewer channels", 0.25))
        }
    if size is None:
        rest = {
            "layers": Arm(LayerPruning()),
            "sparse": Arm(sparse),
            "fewer bits": Arm(Smol(bits=2.0)),
            "sparse → bits": Arm(in_turn(sparse, bits)),
        }
    else:
        floats = sum(weight.numel() * weight.element_size() for weight in task.model.parameters())
        better, first = (better, first) if size > PACKED * floats else ({}, {})
        fast = fast if size > CUT * floats else {}
        rest = {"sparse": Arm(sparse)} if size > SPARSE * floats else {}
    wanted = first | small | better | fast if constraints.latency is None else fast | first | small | better
    return without_rate_variants({PLAIN: Arm()} | wanted | rest)


def ways_of_training(model: nn.Module) -> dict[str, Arm]:
    """Better training than plain, likeliest first, at one rate each: a search tries the others."""
    every = without_rate_variants({PLAIN: Arm()} | suggestions(model))
    return {name: arm for name, arm in every.items() if name != PLAIN}


def without_rate_variants(arms: Mapping[str, Arm]) -> dict[str, Arm]:
    """Without those that differ from an earlier one in their rates alone."""
    kept: dict[str, Arm] = {}
    for name, arm in arms.items():
        if not any(differ_in_rates(arm, other) for other in kept.values()):
            kept[name] = arm
    return kept


def before(arm: Arm, *then: Recipe) -> Arm:
    """A way of training, then what makes it small, with its optimizer and rate."""
    return Arm(in_turn(*([] if arm.recipe is None else [arm.recipe]), *then), arm.optimizer, arm.rate)


def target(constraints: Constraints) -> int | None:
    """The bytes of a recipe's file, its card counted, so that it is within those that are allowed."""
    return None if constraints.bytes is None else int(MARGIN * constraints.bytes)


def compressing(constraints: Constraints, training: RecipeLike | Lift | None = None) -> Compressing:
    """Training, then compression to what is allowed."""
    allowed = target(constraints)
    open_ = allowed is None and constraints.latency is None
    return Compressing(allowed, constraints.latency, 4 if open_ else None, training)


def in_turn(*recipes: RecipeLike | Lift) -> Recipe:
    """One recipe after the other, with equal parts of the budget."""
    return as_recipe(recipes[0]) if len(recipes) == 1 else Chain(recipes)


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
        check_models(candidates, "auto")
    dry_run = DryRun(train, batch_size)
    reasons = {
        name: reason_against(as_recipe(arm.recipe), task, dry_run, seed) for name, arm in candidates.items()
    }
    kept = {name: arm for name, arm in candidates.items() if name == PLAIN or reasons[name] is None}
    return kept, {name: reason for name, reason in reasons.items() if reason is not None and name not in kept}


def reason_against(recipe: Recipe, task: Task, dry_run: DryRun, seed: int) -> str | None:
    """Why a recipe is not for this model, whatever it raises when it is tried."""
    with rng.scope(seed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return recipe.accepts(task, dry_run)
        except Exception as error:  # a candidate can never take the search down
            if machine_fault(error):
                raise
            return one_line(error)
