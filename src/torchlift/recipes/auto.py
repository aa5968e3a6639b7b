"""Try what might help, keep what does: the choice is made on validation data, inside the budget."""

import copy
import dataclasses
from collections.abc import Mapping

from torch import nn
from torch.nn.modules.batchnorm import _NormBase  # pyright: ignore[reportPrivateUsage]

from torchlift.core import SelectionError, Task, TorchliftError
from torchlift.lifts import merge
from torchlift.recipes.budget import Part
from torchlift.recipes.centred import Centred
from torchlift.recipes.chain import Recipe
from torchlift.recipes.folded_norm import FoldedNorm
from torchlift.recipes.plain import Plain
from torchlift.recipes.rotated import Rotated
from torchlift.train import Fit, Score

OTHERWISE = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.RNNBase, nn.MultiheadAttention)


@dataclasses.dataclass(frozen=True)
class Auto:
    """argmin over recipes of the validation loss after a short trial, then that recipe on the rest.

    Every candidate gets an equal part of ``trials`` of the budget, from the same initial weights; the best on
    validation data starts again with what is left. Plain training is always a candidate, so what can be
    lost against it is the cost of the trials and the noise of the choice. ``candidates``: names to recipes;
    :func:`suggestions` for the model at hand unless given.
    """

    candidates: Mapping[str, Recipe] | None = None
    trials: float = 0.15

    def __post_init__(self) -> None:
        if not 0 < self.trials < 1:
            raise TorchliftError(f"Auto's trials must be a part of the budget in (0, 1), got {self.trials}.")

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Trials, choice, and a full fit of the chosen."""
        candidates = {
            "plain": Plain(),
            **(suggestions(task.model) if self.candidates is None else self.candidates),
        }
        if len(candidates) == 1:
            return candidates["plain"](task, fit)
        best, score = "plain", None
        for name, recipe in candidates.items():
            found = self.trial(name, recipe, task, fit, len(candidates))
            if found is not None and found.better_than(score):
                best, score = name, found
        return candidates[best](task, Part(fit, 1 - self.trials, best))

    def trial(self, name: str, recipe: Recipe, task: Task, fit: Fit, count: int) -> Score | None:
        """What a candidate reaches on its part of the trials; None if the model is not for it."""
        short = Part(fit, self.trials / count, f"trial of {name}")
        try:
            return fit.evaluate(recipe(copy.deepcopy(task), short))
        except SelectionError:
            return None


def suggestions(model: nn.Module) -> dict[str, Recipe]:
    """What is worth a trial on a model: all start as plain training does and end exactly.

    Centred coordinates where there are linear or convolution layers, folded normalisation where there are
    several of them, each with a bias to fold into; rotated coordinates for networks that normalise already,
    attend or recur.
    """
    if any(isinstance(part, OTHERWISE) for part in model.modules()):
        return {"rotated": Rotated()}
    layers = [part for part in model.modules() if type(part) in merge.LAYERS]
    biased = all(isinstance(layer.bias, nn.Parameter) for layer in layers)
    found: dict[str, Recipe] = {"centred": Centred()} if layers else {}
    return found | ({"folded norm": FoldedNorm()} if biased and len(layers) > 1 else {})
