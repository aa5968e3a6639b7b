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

from torchlift.core import Fit, Lift, Span, Task
from torchlift.errors import DivergedError, TorchliftError, machine_fault
from torchlift.experiments.arm import Arm
from torchlift.methods.coordinates.normalize import Normalize
from torchlift.methods.coordinates.rotated import Rotated
from torchlift.methods.coordinates.standardize import Standardize
from torchlift.methods.recipe import Recipe, RecipeLike, Started, all_lifts, as_recipe
from torchlift.optim import Muon
from torchlift.train.workers import watched

LOG = logging.getLogger("torchlift")

BATCHES, RECURRENT = (_NormBase, nn.GroupNorm), (nn.RNNBase,)
FEATURES = (nn.LayerNorm, nn.RMSNorm, nn.MultiheadAttention)
"""Layers of networks that normalize already, over pictures or over features, and of those that recur."""
PLAIN, LEAST, PART = "plain", 20, 1 / 16
"""The name of plain training; the steps, and the part of the budget, that a trial has at least."""


@dataclasses.dataclass(frozen=True)
class Attempt:
    """What a candidate has reached: a score, or a reason why it is out."""

    loss: float = math.inf
    started: Started | None = None
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class BestOf(Recipe):
    """argmin over candidates of the validation loss after short trials, then that one on the rest.

    Every candidate takes the beginning of its run, from the same initial weights: ``trials`` of the budget,
    shared equally. The best goes on with what is left, from its weights and its place in the schedule, with a
    new optimizer: the moments of first steps are large, and would slow it down. Plain training is one of
    them, and is kept unless another is better by ``margin`` of its loss. What is lost against the best
    candidate alone are the trials of the others. ``candidates``: names to :class:`torchlift.Arm`, recipes or
    lifts; :func:`suggestions` for the model at hand unless given; the later ones are left out, and named in
    the report, where a trial would have fewer than 20 steps or less than a sixteenth of the budget. One that
    refuses the model, fails or diverges is out, with its reason; reasons and scores are in the report. A
    recipe that only runs as a whole (one that prunes, say) is tried on a part of the budget and, if chosen,
    starts again.
    """

    candidates: Mapping[str, Arm | RecipeLike | Lift] | None = None
    trials: float = 3 / 16
    margin: float = 0.01

    def __post_init__(self) -> None:
        if not 0 < self.trials < 1:
            raise TorchliftError(
                f"BestOf's trials must be a part of the budget in (0, 1), got {self.trials}."
            )
        if self.margin < 0:
            raise TorchliftError(f"BestOf's margin is a part of plain training's loss, got {self.margin}.")

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Trials, choice, and the chosen on the rest."""
        known, untried = self.known(task, fit)
        share = self.trials / len(known)
        tried = share / (share + 1 - self.trials)  # of the run of the one that is chosen
        found = {name: self.trial(name, one, task, fit, share, tried) for name, one in known.items()}
        best = self.chosen({name: one for name, one in found.items() if not one.reason})
        self.tell(found, untried, best, task, fit)
        started, recipe = found[best].started, as_recipe(known[best].recipe)
        span = whole(fit) if started is None else (tried, 1.0)
        last = branch(known[best], best, fit, 1 - self.trials, span)
        return recipe(task, last) if started is None else recipe.resume(started, last).task

    def lifts(self) -> list[Lift] | None:
        """Those of all candidates."""
        return all_lifts(Arm.of(one).recipe for one in (self.candidates or {}).values())

    def known(self, task: Task, fit: Fit) -> tuple[dict[str, Arm], list[str]]:
        """Plain training and the candidates that accept the model, as many as are affordable; the others."""
        given = suggestions(task.model) if self.candidates is None else self.candidates
        every = {PLAIN: Arm()} | {name: Arm.of(one) for name, one in given.items()}
        accepted = {name: one for name, one in every.items() if fits(name, one, task, fit)}
        count = self.affordable(fit.epochs * fit.steps)
        return dict(list(accepted.items())[:count]), list(accepted)[count:]

    def affordable(self, steps: float) -> int:
        """How many candidates a run of so many steps has trials for, plain training among them."""
        return max(2, math.floor(self.trials * min(steps / LEAST, 1 / PART)))

    def trial(self, name: str, candidate: Arm, task: Task, fit: Fit, share: float, tried: float) -> Attempt:
        """What a candidate reaches at the beginning of its run, or, if it has none, in a short one."""
        recipe, mine, title = as_recipe(candidate.recipe), copy.deepcopy(task), f"trial of {name}"
        try:
            with watched():
                first = branch(candidate, title, fit, share, (0.0, tried), keep="last")
                started = recipe.start(mine, first)
                if started is None:
                    tested = recipe(mine, branch(candidate, title, fit, share, whole(fit)))
                else:
                    tested = started.task
                loss = fit.evaluate(tested).loss
            if not math.isfinite(loss):
                raise DivergedError(f"its validation loss is {loss}.")
        except Exception as error:  # whatever is wrong with a candidate, the others go on
            if machine_fault(error):
                raise
            reason = str(error).partition("\n")[0] or type(error).__name__
            LOG.warning("BestOf drops %s: %s", name, reason)
            return Attempt(reason=reason)
        return Attempt(loss, started)

    def chosen(self, able: Mapping[str, Attempt]) -> str:
        """The best; plain training within the margin."""
        if not able:
            raise DivergedError(
                "BestOf has no candidate left: all failed, plain training too; lower the rate."
            )
        best = min(able, key=lambda name: able[name].loss)
        plain = able[PLAIN].loss if PLAIN in able else math.inf
        return PLAIN if plain - able[best].loss <= self.margin * abs(plain) < math.inf else best

    def tell(self, found: Mapping[str, Attempt], untried: list[str], best: str, task: Task, fit: Fit) -> None:
        """Scores, reasons and the choice, for the log and the report."""
        scores = ", ".join(
            f"{name} out ({one.reason})" if one.reason else f"{name} {one.loss:.4g}"
            for name, one in sorted(found.items(), key=lambda pair: pair[1].loss)
        )
        words = f"goes on with {best} (margin {self.margin:.0%}); validation losses: {scores}"
        words += f"; no budget to try {', '.join(untried)}" if untried else ""
        LOG.info("BestOf %s", words)
        fit.report("BestOf", task, words)


def branch(arm: Arm, name: str, fit: Fit, share: float, span: Span | None, **settings: Any) -> Fit:
    """An arm's own fit, over a stretch of the schedule."""
    own = {**arm.settings, "optimizer": arm.optimizer, "rate": arm.rate, **settings}
    return fit.branch(name, share, span, **own)


def whole(fit: Fit) -> Span | None:
    """For a recipe that runs as a whole: all of the schedule, once where the run follows it once."""
    return None if fit.span is None else (0.0, 1.0)


def fits(name: str, candidate: Arm, task: Task, fit: Fit) -> bool:
    """Whether a candidate accepts the model; if not, the reason is said."""
    reason = as_recipe(candidate.recipe).accepts(task, fit)
    if reason is not None:
        LOG.info("BestOf does not try %s: %s", name, reason)
    return reason is None


def suggestions(model: nn.Module) -> dict[str, Arm]:
    """What is worth a trial on a model, likely winners first: all start as plain training does, end exactly.

    Networks that recur, normalize or attend: rotated coordinates and Muon; at six times the rate where they
    recur, which ends badly behind batch normalization; Muon first where they attend. The others: centered
    coordinates and folded normalization. Muon is late there, being behind in a short trial even where it ends
    well; other rates are late everywhere: a higher one looks better in a short trial than it is in the end.
    """
    muon = {"Muon": Arm(optimizer=functools.partial(Muon, lr=2e-2))}
    turned = {"rotated": Arm(Rotated(), rate=2.0)}
    faster = {"rotated, rate × 6": Arm(Rotated(), rate=6.0)}
    rates = {"rate × 3": Arm(rate=3.0), "rate / 3": Arm(rate=1 / 3)}
    parts = list(model.modules())
    if any(isinstance(part, RECURRENT) for part in parts):
        return faster | muon | turned | rates
    if any(isinstance(part, FEATURES) for part in parts):
        return muon | turned | faster | rates
    if any(isinstance(part, BATCHES) for part in parts):
        return turned | muon | faster | rates
    centered = {"centered": Arm(Standardize(), rate=1.7), "folded norm": Arm(Normalize(), rate=2.0)}
    both = {"centered, Muon": dataclasses.replace(muon["Muon"], recipe=Standardize())}
    return centered | muon | rates | both
