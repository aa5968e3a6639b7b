"""Try what might help, in rungs, and train with what does: chosen on validation data, inside the budget."""

import copy
import dataclasses
import functools
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from torch import nn
from torch.nn.modules.batchnorm import _NormBase  # pyright: ignore[reportPrivateUsage]
from torch.nn.modules.conv import _ConvNd  # pyright: ignore[reportPrivateUsage]

from torchlift.core import Fit, Lift, Span, Task, chain
from torchlift.errors import DivergedError, TorchliftError, machine_fault
from torchlift.experiments.arm import Arm, check_models
from torchlift.experiments.step_times import (
    arm_settings,
    arm_step_flops,
    differ_in_rates,
    step_times,
)
from torchlift.methods.coordinates.coarse_to_fine import CoarseToFine
from torchlift.methods.coordinates.normalize import Normalize
from torchlift.methods.coordinates.rotated import Rotated
from torchlift.methods.coordinates.whitened import Whitened
from torchlift.methods.inside import Inside
from torchlift.methods.recipe import Recipe, RecipeLike, Started, all_lifts, as_recipe
from torchlift.optim import Muon, Soap
from torchlift.train.workers import named_worker_errors

LOG = logging.getLogger("torchlift")

BATCHES, RECURRENT = (_NormBase, nn.GroupNorm), (nn.RNNBase,)
FEATURES = (nn.LayerNorm, nn.RMSNorm, nn.MultiheadAttention)
"""Layers of networks that normalize already, over pictures or over features, and of those that recur."""
PLAIN, LEAST, SHORTEST = "plain", 40, 1 / 10
"""The name of plain training; the least steps of a first trial, and its least length beside the last run."""
KEPT, LAST = 3, 4
"""One candidate in so many goes on to a next rung; the most candidates of the last one."""
TIMED = 1 / 50
"""The part of the trials that measuring the time of steps may take."""


@dataclasses.dataclass(frozen=True)
class Attempt:
    """What a candidate has reached: a score, or a reason why it is out."""

    loss: float = math.inf
    started: Started | None = None
    task: Task | None = None
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class BestOf(Recipe):
    """argmin over candidates of the validation loss after short complete runs, then that one on the rest.

    Successive halving: in every rung each candidate takes a short run through the whole schedule, so that
    what is compared is annealed as the end will be; the best third goes on to a rung of longer runs, and the
    last one standing gets what is left. ``trials`` is the part of the budget for all rungs, in equal parts.
    Runs from the first weights (``warm=False``) end in whole runs, as many as a rung's part of ``trials``
    pays for and the last run: of the best of the rungs, the very best at half its rate as well, since short
    runs prefer high rates. The best is delivered. Of candidates that differ in rates alone, one goes on.
    The least trial is a tenth of the last run, since shorter ones rank by who is fast at first: the default
    budget pays for three candidates, tuning (0.75 of four times the epochs and more) for all of them.
    Plain training is always a candidate, and is kept unless another is better by ``margin`` of its loss.

    The ``price`` is time: CPU seconds of a step of every candidate, measured at the start, decide how many
    steps its runs have. "FLOPs" repeat on any machine; a run with ``equal_cost=True`` counts them always.
    With ``warm`` every run starts from the weights of the candidate's last one, the final run too; otherwise
    from the first weights. ``candidates``: names to :class:`torchlift.Arm`, recipes or lifts;
    :func:`suggestions` for the model at hand unless given. The later ones are left out, and named in the
    report, where trials would be shorter than that or than 40 steps. One that cannot take the model
    or diverges is out, with its reason.
    """

    candidates: Mapping[str, Arm | RecipeLike | Lift] | None = None
    trials: float = 0.25
    margin: float = 0.01
    warm: bool = True
    price: Literal["time", "FLOPs"] = "time"

    def __post_init__(self) -> None:
        if not 0 < self.trials < 1:
            raise TorchliftError(
                f"BestOf's trials must be a fraction of the budget in (0, 1), got {self.trials}."
            )
        if self.price not in ("time", "FLOPs"):
            raise TorchliftError(f"BestOf's price is 'time' or 'FLOPs', got {self.price!r}.")
        if self.margin < 0:
            raise TorchliftError(
                f"BestOf's margin is a fraction of plain training's loss, got {self.margin}."
            )

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Rungs of trials, choice, and the chosen on the rest."""
        arms, untried = self.affordable_arms(task, fit)
        prices = self.prices(arms, task, fit)
        tried: list[dict[str, Attempt]] = []
        alive = list(arms)
        counts = self.rungs(len(arms))
        whole_run, finalists = 1 - self.trials, self.finalists(len(counts))
        for rung, count in enumerate(counts):
            before = tried[-1] if tried else {}
            alive = (alive if self.warm else best_rates(alive, arms))[:count] if rung else alive
            share = (self.trials - (finalists - 1) * whole_run) / len(counts) / len(alive)
            tried.append(
                {
                    name: self.trial(
                        name, rung, arms[name], task, fit, share / prices[name], before.get(name), keep="last"
                    )
                    for name in alive
                }
            )
            alive = best_first(tried[-1])
        if finalists > 1 and alive:
            slower = slowed(arms[alive[0]])
            name = next((n for n, arm in arms.items() if arm == slower), f"{alive[0]}, rate / 2")
            arms, prices = {**arms, name: slower}, {**prices, name: prices[alive[0]]}
            alive = list(dict.fromkeys([alive[0], name, *best_rates(alive, arms)]))[:finalists]
            length = {name: whole_run / prices[name] for name in alive}
            tried.append(
                {name: self.trial(name, len(counts), arms[name], task, fit, length[name]) for name in alive}
            )
        best = self.chosen(tried[-1])
        self.tell(tried, untried, prices, best, task, fit)
        reached = tried[-1][best]
        if finalists > 1 and reached.task is not None:
            return reached.task
        last = branch(arms[best], best, fit, whole_run / prices[best], whole_span(fit))
        recipe = as_recipe(arms[best].recipe)
        return recipe(task, last) if reached.started is None else recipe.resume(reached.started, last).task

    def lifts(self) -> list[Lift] | None:
        """Those of all candidates."""
        return all_lifts(Arm.of(one).recipe for one in (self.candidates or {}).values())

    def affordable_arms(self, task: Task, fit: Fit) -> tuple[dict[str, Arm], list[str]]:
        """Plain training and the candidates that accept the model, as many as are affordable; the others."""
        chosen = suggestions(task.model) if self.candidates is None else self.candidates
        every = {PLAIN: Arm()} | {name: Arm.of(one) for name, one in chosen.items()}
        check_models(every, "BestOf")
        accepted = {name: one for name, one in every.items() if accepts_model(name, one, task, fit)}
        count = self.affordable(fit.epochs * fit.steps)
        return dict(list(accepted.items())[:count]), list(accepted)[count:]

    def rungs(self, count: int) -> list[int]:
        """How many candidates each rung has: a third of the one before, until few are left.

        Runs from the first weights have two rungs at most: whole runs come after them.
        """
        counts = [count]
        while counts[-1] > LAST and (self.warm or len(counts) < 2):
            counts.append(math.ceil(counts[-1] / KEPT))
        return counts

    def finalists(self, rungs: int) -> int:
        """How many whole runs come after the rungs: a part of the trials as large as a rung's is for them."""
        if self.warm or rungs < 2:
            return 1
        return 1 + int(self.trials / (rungs + 1) / (1 - self.trials) + 1e-9)

    def affordable(self, steps: float) -> int:
        """How many candidates a run of so many steps has trials for, plain training among them."""
        least = max(LEAST / steps, SHORTEST * (1 - self.trials))
        count = 2
        while self.first_share(count + 1) >= least:
            count += 1
        return count

    def first_share(self, count: int) -> float:
        """The part of the budget that a first trial of so many has."""
        length = len(self.rungs(count))
        return (self.trials - (self.finalists(length) - 1) * (1 - self.trials)) / length / count

    def prices(self, arms: Mapping[str, Arm], task: Task, fit: Fit) -> dict[str, float]:
        """What a step of each arm costs, in steps of plain training; 1 where the run itself counts FLOPs."""
        if math.isfinite(fit.left()) or len(arms) < 2:
            return dict.fromkeys(arms, 1.0)
        if self.price == "FLOPs":
            flops = arm_step_flops(arms, task, fit)
            return {name: flops[name] / flops[PLAIN] for name in arms}
        rounds = max(6, min(20, round(TIMED * self.trials * fit.epochs * fit.steps / len(arms))))
        seconds = fit.remember("seconds of a step", lambda: step_times(arms, task, fit, rounds))
        plain = seconds[PLAIN]
        return {name: seconds[name] / plain if plain and seconds[name] else 1.0 for name in arms}

    def trial(
        self,
        name: str,
        rung: int,
        arm: Arm,
        task: Task,
        fit: Fit,
        share: float,
        before: Attempt | None = None,
        **settings: Any,
    ) -> Attempt:
        """What a candidate reaches in a complete run."""
        recipe, title = as_recipe(arm.recipe), f"trial {rung + 1} of {name}"
        started = None if before is None else before.started
        try:
            with named_worker_errors():
                short = branch(arm, title, fit, share, whole_span(fit), **settings)
                if started is not None:
                    started = recipe.resume(started, short)
                elif self.warm:
                    started = recipe.start(copy.deepcopy(task), short)
                tested = started.task if started is not None else recipe(copy.deepcopy(task), short)
                loss = fit.evaluate(tested).loss
            if not math.isfinite(loss):
                raise DivergedError(f"its validation loss is {loss}.")
        except Exception as error:  # whatever is wrong with a candidate, the others go on
            if machine_fault(error):
                raise
            reason = str(error).partition("\n")[0] or type(error).__name__
            LOG.warning("BestOf drops %s: %s", name, reason)
            return Attempt(reason=reason)
        return Attempt(loss, started, None if self.warm else tested)

    def chosen(self, attempts: Mapping[str, Attempt]) -> str:
        """The best; plain training within the margin."""
        able = best_first(attempts)
        if not able:
            raise DivergedError(
                "BestOf has no candidate left: all failed, plain training too; lower the rate."
            )
        best = attempts[able[0]].loss
        plain = attempts[PLAIN].loss if PLAIN in able else math.inf
        return PLAIN if plain - best <= self.margin * abs(plain) < math.inf else able[0]

    def tell(
        self,
        tried: Sequence[Mapping[str, Attempt]],
        untried: Sequence[str],
        prices: Mapping[str, float],
        best: str,
        task: Task,
        fit: Fit,
    ) -> None:
        """Scores, reasons, prices and the choice, for the log and the report."""
        words = f"goes on with {best} (margin {self.margin:.0%})"
        for number, attempts in enumerate(tried, 1):
            scores = ", ".join(
                f"{name} out ({one.reason})" if one.reason else f"{name} {one.loss:.4g}"
                for name, one in sorted(attempts.items(), key=lambda pair: pair[1].loss)
            )
            words += f"; validation losses of rung {number}: {scores}"
        dear = ", ".join(f"{name} {price:.2f}" for name, price in prices.items() if price != 1.0)
        words += f"; {self.price} of a step to plain's: {dear}" if dear else ""
        words += f"; no budget to try {', '.join(untried)}" if untried else ""
        LOG.info("BestOf %s", words)
        fit.report("BestOf", task, words)


def best_rates(best: Sequence[str], arms: Mapping[str, Arm]) -> list[str]:
    """Best first, without those that differ from a better one in their rates alone."""
    return [
        name
        for number, name in enumerate(best)
        if not any(differ_in_rates(arms[name], arms[other]) for other in best[:number])
    ]


def slowed(arm: Arm) -> Arm:
    """At half its rate: the shorter a run, the higher the rates it is best at."""
    return dataclasses.replace(arm, rate=arm.rate / 2)


def best_first(attempts: Mapping[str, Attempt]) -> list[str]:
    """The names of those that are not out, best first."""
    return sorted((n for n, one in attempts.items() if not one.reason), key=lambda n: attempts[n].loss)


def branch(arm: Arm, name: str, fit: Fit, share: float, span: Span | None, **settings: Any) -> Fit:
    """An arm's own fit, over a stretch of the schedule."""
    return fit.branch(name, share, span, **arm_settings(arm, **settings))


def whole_span(fit: Fit) -> Span | None:
    """All of the schedule, once where the run follows it once."""
    return None if fit.span is None else (0.0, 1.0)


def accepts_model(name: str, candidate: Arm, task: Task, fit: Fit) -> bool:
    """Whether a candidate accepts the model; if not, the reason is said."""
    reason = as_recipe(candidate.recipe).accepts(task, fit)
    if reason is not None:
        LOG.info("BestOf does not try %s: %s", name, reason)
    return reason is None


def suggestions(model: nn.Module) -> dict[str, Arm]:
    """What is worth a trial on a model, likely winners first; all deliver the network as it was given.

    Muon, SOAP and other rates for every network; those without norms also with one, folded away at the end;
    convolutions also whitened, and pictures coarse to fine.
    """

    def muon(recipe: Any = None, rate: float = 1e-2) -> Arm:
        return Arm(recipe, functools.partial(Muon, lr=rate))

    def soap(recipe: Any = None, rate: float = 1e-2) -> Arm:
        return Arm(recipe, functools.partial(Soap, lr=rate))

    faster, slower = {"rate × 3": Arm(rate=3.0)}, {"rate / 3": Arm(rate=1 / 3)}
    soaps = {"SOAP": soap(), "SOAP, rate / 3": soap(rate=3e-3)}
    muons = {"Muon, rate × 3": muon(rate=3e-2)}
    layers = list(model.modules())
    if any(isinstance(layer, RECURRENT) for layer in layers):
        turned = {"rotated": Arm(Rotated(), rate=2.0), "rotated, rate × 3": Arm(Rotated(), rate=6.0)}
        return {"Muon": muon(), **muons, **soaps, **faster, **turned, **slower}
    convolutional = any(isinstance(layer, _ConvNd) for layer in layers)
    coarse, white, norm = CoarseToFine(), Whitened(), Normalize()
    if any(isinstance(layer, FEATURES) for layer in layers):
        sized = {"coarse to fine, Muon": muon(coarse)}
        more = {"coarse to fine, Muon, rate × 3": muon(coarse, 3e-2), "coarse to fine, SOAP": soap(coarse)}
        early, late = (sized, more) if convolutional else ({}, sized | more)  # pictures, texts
        return {"Muon": muon(), **early, **muons, **soaps, **faster, **late, **slower}
    if any(isinstance(layer, BATCHES) for layer in layers):
        if not convolutional:
            return {"Muon": muon(), **muons, **soaps, **faster, **slower}
        sized = {"whitened, Muon": muon(white), "coarse to fine, Muon": muon(coarse)}
        more = {"whitened, Muon, rate × 3": muon(white, 3e-2), "whitened, SOAP": soap(white)}
        return {"Muon": muon(), **sized, **muons, **soaps, **faster, **more, **slower}
    if not convolutional:
        return {
            "norm": Arm(norm),
            "Muon": muon(),
            "norm, Muon": muon(norm),
            "norm, rate × 3": Arm(norm, rate=3.0),
            **soaps,
            **faster,
            "norm, SOAP": soap(norm),
            **muons,
            **slower,
        }
    both = chain(norm, white)
    return {
        "whitened, norm, Muon": muon(both),
        "norm, Muon": muon(norm),
        "Muon": muon(),
        "norm": Arm(norm),
        "coarse to fine, norm, Muon": muon(Inside(norm, coarse)),
        "whitened, norm, Muon, rate × 3": muon(both, 3e-2),
        "whitened, norm, SOAP": soap(both),
        "norm, rate × 3": Arm(norm, rate=3.0),
        "norm, SOAP": soap(norm),
        **soaps,
        **faster,
        **slower,
    }
