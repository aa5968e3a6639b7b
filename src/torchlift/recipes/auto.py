"""Try what might help, keep what does: the choice is made on validation data, inside the budget."""

import copy
import dataclasses
import logging
from collections.abc import Mapping

from torch import nn
from torch.nn.modules.batchnorm import _NormBase  # pyright: ignore[reportPrivateUsage]

from torchlift.core import Fit, Lift, Task
from torchlift.errors import CheckpointError, DataError, TorchliftError
from torchlift.recipes.centred import Centred
from torchlift.recipes.folded_norm import FoldedNorm
from torchlift.recipes.plain import Plain
from torchlift.recipes.rotated import Rotated
from torchlift.recipes.tools.recipe import Recipe, RecipeLike, as_recipe
from torchlift.train import Score

LOG = logging.getLogger("torchlift")

OTHERWISE = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.RNNBase, nn.MultiheadAttention)


@dataclasses.dataclass(frozen=True)
class Auto(Recipe):
    """argmin over recipes of the validation loss after a short trial, then that recipe on the rest.

    Every candidate gets an equal part of ``trials`` of the budget, from the same initial weights; the best on
    validation data starts again with what is left. Plain training is always a candidate, so what can be
    lost against it is the cost of the trials and the noise of the choice. ``candidates``: names to recipes;
    :func:`suggestions` for the model at hand unless given. One that does not accept the model, or fails on
    it, is dropped with its reason.
    """

    candidates: Mapping[str, RecipeLike | Lift] | None = None
    trials: float = 0.15

    def __post_init__(self) -> None:
        if not 0 < self.trials < 1:
            raise TorchliftError(f"Auto's trials must be a part of the budget in (0, 1), got {self.trials}.")

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Trials, choice, and a full fit of the chosen."""
        given = suggestions(task.model) if self.candidates is None else self.candidates
        candidates = {"plain": Plain(), **{name: as_recipe(recipe) for name, recipe in given.items()}}
        candidates = {name: recipe for name, recipe in candidates.items() if fits(name, recipe, task, fit)}
        if len(candidates) == 1:
            return candidates["plain"](task, fit)
        best, score = "plain", None
        for name, recipe in candidates.items():
            found = self.trial(name, recipe, task, fit, len(candidates))
            if found is not None and found.better_than(score):
                best, score = name, found
        return candidates[best](task, fit.branch(best, 1 - self.trials))

    def trial(self, name: str, recipe: Recipe, task: Task, fit: Fit, count: int) -> Score | None:
        """What a candidate reaches on its part of the trials; None if it fails."""
        short = fit.branch(f"trial of {name}", self.trials / count)
        try:
            return fit.evaluate(recipe(copy.deepcopy(task), short))
        except (CheckpointError, DataError):
            raise  # a full disk or bad data are no candidate's fault
        except TorchliftError as reason:
            LOG.warning("Auto drops %s: %s", name, reason)
            return None


def fits(name: str, recipe: Recipe, task: Task, fit: Fit) -> bool:
    """Whether a candidate accepts the model; if not, the reason is said."""
    reason = recipe.accepts(task, fit)
    if reason is not None:
        LOG.info("Auto does not try %s: %s", name, reason)
    return reason is None


def suggestions(model: nn.Module) -> dict[str, Recipe]:
    """What is worth a trial on a model: all start as plain training does and end exactly.

    Rotated coordinates for networks that normalise already, attend or recur; centred coordinates and folded
    normalisation for the others.
    """
    if any(isinstance(part, OTHERWISE) for part in model.modules()):
        return {"rotated": Rotated()}
    return {"centred": Centred(), "folded norm": FoldedNorm()}
