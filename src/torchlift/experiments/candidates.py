"""What is worth a trial on a model under its constraints: plain training, better training, smaller models."""

import itertools
import warnings
from collections.abc import Mapping
from typing import Any

from torchlift.core import Lift, Task
from torchlift.errors import machine_fault, one_line
from torchlift.experiments.arm import AnyRecipe, Arm, check_models
from torchlift.experiments.best_of import suggestions
from torchlift.experiments.compressing import Compressing
from torchlift.experiments.constraints import Constraints
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
    arms = {name: arm for name, arm in suggestions(task.model).items() if arm.recipe or arm.optimizer}
    better = dict(itertools.islice(arms.items(), BETTER))
    trained = {f"{name} → bits": before(arm, bits) for name, arm in better.items()}
    small = {
        "compressed": Arm(compressing(constraints)),
        **dict(itertools.islice(trained.items(), 1)),
        "channels → bits": Arm(halves(channels, bits)),
        "norm → bits": Arm(halves(Normalize(), bits)),
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
            "sparse → bits": Arm(halves(sparse, bits)),
        }
    else:
        floats = sum(weight.numel() * weight.element_size() for weight in task.model.parameters())
        better = better if size > PACKED * floats else {}
        fast = fast if size > CUT * floats else {}
        rest = {"sparse": Arm(sparse)} if size > SPARSE * floats else {}
    first = dict(itertools.islice(better.items(), 1))
    wanted = first | small | better | fast if constraints.latency is None else fast | first | small | better
    return {PLAIN: Arm()} | wanted | rest


def before(arm: Arm, bits: Recipe) -> Arm:
    """A way of training, then bits, with its optimizer and rate."""
    return Arm(bits if arm.recipe is None else halves(arm.recipe, bits), arm.optimizer, arm.rate)


def target(constraints: Constraints) -> int | None:
    """The bytes of a recipe's file, its card counted, so that it is within those that are allowed."""
    return None if constraints.bytes is None else int(MARGIN * constraints.bytes)


def compressing(constraints: Constraints) -> Compressing:
    """Plain training, then compression to what is allowed."""
    allowed = target(constraints)
    open_ = allowed is None and constraints.latency is None
    return Compressing(allowed, constraints.latency, 4 if open_ else None)


def halves(first: RecipeLike | Lift, bits: Recipe) -> Chain:
    """One recipe after the other, half of the budget each."""
    return Chain({"first": as_recipe(first), "bits": bits}, {"first": 0.5, "bits": 0.5})


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
    look = DryRun(train, batch_size)
    reasons = {
        name: reason_against(as_recipe(arm.recipe), task, look, seed) for name, arm in candidates.items()
    }
    kept = {name: arm for name, arm in candidates.items() if name == PLAIN or reasons[name] is None}
    return kept, {name: reason for name, reason in reasons.items() if reason is not None and name not in kept}


def reason_against(recipe: Recipe, task: Task, look: DryRun, seed: int) -> str | None:
    """Why a recipe is not for this model, whatever it raises when it is tried."""
    with rng.scope(seed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return recipe.accepts(task, look)
        except Exception as error:  # a candidate can never take the search down
            if machine_fault(error):
                raise
            return one_line(error)
