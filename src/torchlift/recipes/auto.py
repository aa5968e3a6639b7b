"""Try what might help, go on with what does: the choice is made on validation data, inside the budget."""

import copy
import dataclasses
import functools
import logging
import math
from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _NormBase  # pyright: ignore[reportPrivateUsage]

from torchlift.core import Fit, Lift, Task
from torchlift.errors import CheckpointError, DataError, DivergedError, TorchliftError
from torchlift.optim import Muon
from torchlift.recipes.centred import Centred
from torchlift.recipes.folded_norm import FoldedNorm
from torchlift.recipes.rotated import Rotated
from torchlift.recipes.tools.begun import Begun
from torchlift.recipes.tools.recipe import Recipe, RecipeLike, as_recipe
from torchlift.train import DurableFit
from torchlift.train.settings import Times
from torchlift.train.workers import watched

LOG = logging.getLogger("torchlift")

OTHERWISE = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.RNNBase, nn.MultiheadAttention)
PLAIN, FINALISTS, LEAST = "plain", 3, 10
"""The name of plain training; candidates of the second round, plain among them; steps of a trial at least."""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A recipe at ``rate`` times the run's learning rate, or with an ``optimizer`` of its own."""

    recipe: RecipeLike | Lift | None = None
    rate: float = 1.0
    optimizer: Any = None

    def settings(self, schedule: Any) -> dict[str, Any]:
        """What its fits are told."""
        own: dict[str, Any] = {} if self.optimizer is None else {"optimizer": self.optimizer}
        return own if self.rate == 1.0 else own | {"schedule": Times(schedule, self.rate)}


@dataclasses.dataclass(frozen=True)
class Trial:
    """What a candidate has reached: a score, or a reason why it is out."""

    loss: float = math.inf
    begun: Begun | None = None
    spent: float = 0.0
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Auto(Recipe):
    """argmin over candidates of the validation loss after short trials, then that one on the rest.

    Two rounds share ``trials`` of the budget: all candidates from the same initial weights, then plain
    training and the two best others, continued. The best goes on from where it stands, weights and optimiser,
    with what is left of the budget; plain training unless another is better by ``margin`` of its loss. What
    is lost against the best candidate alone are the trials of the others. ``candidates``: names to
    :class:`Candidate`, recipes or lifts; :func:`suggestions` for the model at hand unless given; the later
    ones are left out where a trial would have fewer than 10 steps. One that refuses the model, fails or
    diverges is out, with its reason; reasons and scores are in the report. A recipe that only runs as a whole
    (one that prunes, say) is tried on a part of the budget and, if chosen, starts again.
    """

    candidates: Mapping[str, Candidate | RecipeLike | Lift] | None = None
    trials: float = 0.2
    margin: float = 0.01

    def __post_init__(self) -> None:
        if not 0 < self.trials < 1:
            raise TorchliftError(f"Auto's trials must be a part of the budget in (0, 1), got {self.trials}.")
        if self.margin < 0:
            raise TorchliftError(f"Auto's margin is a part of plain training's loss, got {self.margin}.")

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Two rounds, choice, and the chosen on the rest."""
        known = self.known(task, fit)
        share = self.share(len(known))
        found = {name: self.trial(name, one, task, fit, share) for name, one in known.items()}
        final = finalists(found)
        if len(final) > 1:
            share = self.share(len(final))
            found |= {name: self.trial(name, known[name], task, fit, share, found[name]) for name in final}
        best = self.chosen({name: found[name] for name in final if not found[name].reason})
        self.tell(found, best, task, fit)
        last = self.branch(best, known[best], fit, max(0.05, 1 - sum(one.spent for one in found.values())))
        begun, recipe = found[best].begun, as_recipe(known[best].recipe)
        return recipe(task, last) if begun is None else recipe.carry_on(begun, last).task

    def known(self, task: Task, fit: Fit) -> dict[str, Candidate]:
        """Plain training and the candidates that accept the model, as many as the trials have steps for."""
        given = suggestions(task.model) if self.candidates is None else self.candidates
        every = {PLAIN: Candidate()} | {name: as_candidate(one) for name, one in given.items()}
        accepted = {name: one for name, one in every.items() if fits(name, one, task, fit)}
        count = self.affordable(fit.epochs * fit.steps)
        for name in list(accepted)[count:]:
            LOG.info("Auto does not try %s: the budget has no %d steps for it.", name, LEAST)
        return dict(list(accepted.items())[:count])

    def affordable(self, steps: float) -> int:
        """How many candidates a run of so many steps has trials for, plain training among them."""
        return max(2, math.floor(self.trials / 2 * steps / LEAST))

    def share(self, count: int) -> float:
        """The part of the budget of each of ``count`` trials of a round."""
        return self.trials / 2 / count

    def branch(self, name: str, candidate: Candidate, fit: Fit, share: float) -> Fit:
        """A candidate's own fit."""
        schedule = fit.settings.schedule if isinstance(fit, DurableFit) else "constant"
        return fit.branch(name, share, **candidate.settings(schedule))

    def trial(
        self, name: str, candidate: Candidate, task: Task, fit: Fit, share: float, before: Trial | None = None
    ) -> Trial:
        """What a candidate reaches on its part of a round, from where it stands after the round before."""
        recipe, mine = as_recipe(candidate.recipe), copy.deepcopy(task)
        spent = share + (before.spent if before else 0.0)
        short = self.branch(f"{'second ' if before else ''}trial of {name}", candidate, fit, share)
        try:
            with watched():
                if before is not None and before.begun is not None:
                    begun = recipe.carry_on(before.begun, short)
                else:
                    begun = recipe.begin(mine, short)
                loss = fit.evaluate(recipe(mine, short) if begun is None else begun.task).loss
            if not math.isfinite(loss):
                raise DivergedError(f"its validation loss is {loss}.")
        except (CheckpointError, DataError, OSError):
            raise  # a full disk, bad data or a dead worker are no candidate's fault
        except Exception as error:  # whatever is wrong with a candidate, the others go on
            reason = str(error).partition("\n")[0] or type(error).__name__
            LOG.warning("Auto drops %s: %s", name, reason)
            return Trial(spent=spent, reason=reason)
        return Trial(loss, begun, spent)

    def chosen(self, able: Mapping[str, Trial]) -> str:
        """The best of the last round; plain training within the margin."""
        if not able:
            raise DivergedError("Auto has no candidate left: all failed, plain training too; lower the rate.")
        best = min(able, key=lambda name: able[name].loss)
        plain = able[PLAIN].loss if PLAIN in able else math.inf
        return PLAIN if plain - able[best].loss <= self.margin * abs(plain) < math.inf else best

    def tell(self, found: Mapping[str, Trial], best: str, task: Task, fit: Fit) -> None:
        """Scores, reasons and the choice, for the log and the report."""
        scores = ", ".join(
            f"{name} out ({one.reason})" if one.reason else f"{name} {one.loss:.4g}"
            for name, one in sorted(found.items(), key=lambda pair: (-pair[1].spent, pair[1].loss))
        )
        words = f"goes on with {best} (margin {self.margin:.0%}); validation losses: {scores}"
        LOG.info("Auto %s", words)
        if isinstance(fit, DurableFit):
            fit.tell("Auto", words, task)


def finalists(found: Mapping[str, Trial]) -> list[str]:
    """Plain training and the best others, of those that have a score."""
    able = sorted((name for name in found if not found[name].reason), key=lambda name: found[name].loss)
    return sorted(able, key=lambda name: name != PLAIN)[:FINALISTS]


def as_candidate(given: Candidate | RecipeLike | Lift) -> Candidate:
    """A candidate, or a recipe at the run's rate."""
    return given if isinstance(given, Candidate) else Candidate(given)


def fits(name: str, candidate: Candidate, task: Task, fit: Fit) -> bool:
    """Whether a candidate accepts the model; if not, the reason is said."""
    reason = as_recipe(candidate.recipe).accepts(task, fit)
    if reason is not None:
        LOG.info("Auto does not try %s: %s", name, reason)
    return reason is None


def suggestions(model: nn.Module) -> dict[str, Candidate]:
    """What is worth a trial on a model: all start as plain training does and end exactly.

    Rotated coordinates for networks that normalise already, attend or recur; centred coordinates and folded
    normalisation for the others; higher and lower rates; Muon, alone and in centred coordinates.
    """
    muon = functools.partial(Muon, lr=1e-2)
    normalises = any(isinstance(part, OTHERWISE) for part in model.modules())
    first = {"rotated": Rotated()} if normalises else {"centred": Centred(), "folded norm": FoldedNorm()}
    second = {"rotated, rate × 6": Candidate(Rotated(), 6.0)} if normalises else {}
    return {
        **{name: Candidate(recipe, 2.0) for name, recipe in first.items()},
        "rate × 3": Candidate(rate=3.0),
        "Muon": Candidate(optimizer=muon),
        **second,
        "rate / 3": Candidate(rate=1 / 3),
        "centred, Muon": Candidate(Centred(), optimizer=muon),
        "Muon, rate / 3": Candidate(rate=1 / 3, optimizer=muon),
    }
