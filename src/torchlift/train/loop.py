"""The one loop: minimize a problem step by step, and be able to stop and go on anywhere."""

import contextlib
import copy
import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from torchlift.core import Batch, Problem, dials
from torchlift.core.gradient_step import GradientStep
from torchlift.core.stored import drop_stale, load_record_state, record_state
from torchlift.errors import BudgetError, DivergedError
from torchlift.train import rng
from torchlift.train.batches import Accumulated, Source, StepBatches, Tensors, example, share
from torchlift.train.cost import Probe, count, probe
from torchlift.train.engines import Engine
from torchlift.train.evaluation import Metric, Score, evaluate, gradient_norm
from torchlift.train.history import HistoryRow
from torchlift.train.optimizers import restore_optimizer
from torchlift.train.settings import Settings
from torchlift.train.stepping import StepContext, Stepper, optimizer_of
from torchlift.train.together import Together
from torchlift.train.until import Rule
from torchlift.tree import leaves, move

StateTree = dict[str, Any]


@dataclasses.dataclass
class Position:
    """Where a fit stands: everything but the problem, the optimizer and the random streams."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    loss: float = 0.0
    """Sum of the objective over the steps of this epoch."""
    flops: float = 0.0
    seconds: float = 0.0
    stopped: str = ""
    """Why the fit ended: "cap", "rule" or "budget" (not one step left to pay for); empty while it runs."""
    best: StateTree | None = None
    score: Score | None = None
    remembered: dict[int, StateTree] = dataclasses.field(default_factory=dict[int, StateTree])


@dataclasses.dataclass
class Hooks:
    """What the loop tells the outside: rows as they come, and when it is safe to save."""

    row: Callable[[HistoryRow], None]
    step: Callable[[int], None]
    pause: Callable[["Loop"], None]


class EngineStep(GradientStep):
    """A step through an engine: several processes, mixed precision, compiled."""

    def __init__(self, problem: Problem, optimizer: Optimizer, settings: Settings, engine: Engine) -> None:
        compiled, stepper = engine.setup(problem, optimizer)
        super().__init__(problem, stepper, settings.clip)
        self.compiled, self.stepper, self.engine = compiled, stepper, engine

    def objective(self, *batch: Batch | float) -> Tensor:
        """As the engine computes it."""
        return self.compiled(*batch)

    def backward(self, loss: Tensor) -> None:
        """The mean over processes."""
        self.engine.backward(loss)

    def clip_gradients(self, norm: float) -> None:
        """Of all processes together."""
        self.engine.clip(self.problem, self.stepper, norm)


class Loop:
    """One fit: ``problem`` is trained in place while t runs from 0 to 1.

    ``allowance``: the FLOPs it may spend on all that it computes: its pass over the data, what it logs, and
    the trials that tell what a step costs, less those that are ``free``; below that of one ``plain`` step
    nothing is tried. Without one, the rule's epochs are passes over the data. Masks (``core.stored``) hold;
    grids are left.
    """

    def __init__(
        self,
        problem: Problem,
        settings: Settings,
        rule: Rule,
        train: Source,
        valid: Source | None,
        engine: Engine,
        *,
        seed: int,
        metric: Metric | None = None,
        allowance: float | None = None,
        free: float = 0.0,
        plain: float = 0.0,
    ) -> None:
        self.problem, self.settings = problem, settings
        self.train, self.valid, self.engine = train, valid, engine
        self.seed, self.metric = seed, metric
        self.at = Position()
        self.unspent = 0.0
        """What is left of the allowance because it does not pay for another step."""
        self.counted = isinstance(problem, Stepper) and allowance is None and train.steps() == 1
        """Whether every step is counted as it is taken: a trial would cost as much as an epoch."""
        broke = allowance is not None and allowance < plain  # not even a trial is paid for
        trial = Probe(0, ()) if self.counted or broke else self.trial()
        spent = trial.spent
        share = rule.cap * train.steps() * plain
        if allowance is not None and not broke and spent - free > max(allowance, share):
            raise BudgetError(
                f"fit {settings.name!r}: one step costs {(spent - free) / share:.3g} times its share of the "
                "budget: raise it."
            )
        if self.train.fixed and not broke and (allowance is None or allowance >= trial.flops * train.steps()):
            indexed = problem.indexed
            self.prepare()
            if not self.counted and (self.at.flops or problem.indexed != indexed):
                trial = self.trial()
                spent += trial.spent
        self.flops, self.log_flops = trial.flops, 0
        if allowance is not None:
            self.at.flops += max(0.0, spent - free)
            self.log_flops = 0 if broke else self.logging()
            self.at.flops += self.log_flops
        self.idle = [problem.get_parameter(name) for name in trial.unused] if engine.world > 1 else []
        self.total = self.affordable(rule, allowance)
        self.rule = rule.scaled(max(self.total, 1) / (rule.cap * train.steps()))
        self.at.stopped = "" if self.total else "budget"
        annealed = any(dial.moves for dial in dials(problem))
        self.keep = "last" if annealed else settings.keep  # an annealed problem is itself at t = 1
        self.optimizer = optimizer_of(problem, settings)
        if settings.warm is not None:
            self.optimizer.load_state_dict(copy.deepcopy(settings.warm.optimizer))

    def trial(self) -> Probe:
        """What a step costs, on a copy."""
        one = probe(self.problem, self.example(), self.settings.make_optimizer, self.train.steps())
        if not isinstance(self.train, Accumulated):
            return one
        batches = self.train.inner.steps() / self.train.steps()
        return dataclasses.replace(one, flops=round(batches * one.flops))

    def example(self) -> Batch:
        """A training batch to try the problem on."""
        return move(example(self.train, self.problem.indexed), self.engine.device)

    def affordable(self, rule: Rule, allowance: float | None) -> int:
        """The number of steps: the rule's cap, or what the allowance pays for."""
        if allowance is None:
            return max(1, round(rule.cap * self.train.steps()))
        left = allowance - self.at.flops
        if left <= 0 or not self.flops:
            self.unspent = 0.0
            return 0
        epoch = self.train.steps()
        steps = max(0, math.floor(left / (self.flops + self.log_flops / epoch) * (1 + 1e-9)))
        while steps and self.log_flops and self.price(steps) > left:
            steps -= 1
        self.unspent = max(0.0, left - self.price(steps))
        return steps

    def price(self, steps: int) -> float:
        """FLOPs of so many steps, with what is logged at the end of every epoch."""
        return steps * self.flops + math.ceil(steps / self.train.steps()) * self.log_flops

    def logging(self) -> int:
        """FLOPs of what is logged after an epoch, by a look at the problem as it is."""
        if self.settings.log is None:
            return 0
        log, problem = self.settings.log, copy.deepcopy(self.problem).eval()
        with rng.scope():
            return count(lambda: log(problem))

    def prepare(self) -> None:
        """Let the problem look at fixed data once, and count what that costs."""
        with rng.scope(), torch.no_grad():
            batches = (move(batch, self.engine.device) for batch in self.train.ordered())
            self.at.flops += count(lambda: self.problem.prepare(batches))

    def run(self, hooks: Hooks) -> None:
        """Train to the end."""
        self.dials, self.factor = list(dials(self.problem)), self.settings.factor(self.total)
        whole = dataclasses.replace(self.settings, span=(0.0, 1.0))
        self.own_factor = None if whole == self.settings else whole.factor(self.total)
        for parameter in self.idle:  # data-parallel torch waits for a gradient of every trainable parameter
            parameter.requires_grad_(False)
        if isinstance(self.problem, Stepper):
            self.problem.start(self.context())
        else:
            self.descent = EngineStep(self.problem, self.optimizer, self.settings, self.engine)
        self.on_device = isinstance(self.train, Tensors) and self.train.device == self.engine.device
        self.problem.train()
        while not self.at.stopped:
            self.run_epoch(hooks)
            self.end_epoch(hooks)
        if self.at.best is not None:
            self.problem.load_state_dict(self.at.best)
        for parameter in self.idle:
            parameter.requires_grad_(True)
        drop_stale(self.problem)
        self.problem.eval()

    def run_epoch(self, hooks: Hooks) -> None:
        """Steps to the end of the epoch, or of the fit."""
        at, started = self.at, time.perf_counter()
        batches = self.train.epoch(rng.key(self.seed, at.epoch), at.batch, self.problem.indexed)
        for batch in batches:
            at.loss += self.step(batch)
            at.step += 1
            at.batch += 1
            at.flops += self.flops
            hooks.step(at.step)
            if at.step >= self.total:
                break
            if at.batch < self.train.steps():
                now = time.perf_counter()
                at.seconds, started = at.seconds + now - started, now
                hooks.pause(self)
        at.seconds += time.perf_counter() - started

    def step(self, batch: Batch) -> float:
        """One gradient step on one batch; the objective before it."""
        t = self.at.step / max(1, self.total - 1)
        for dial in self.dials:
            dial.turn(t)
        batches = batch if isinstance(batch, StepBatches) else [batch]
        if not self.on_device:
            batches = [move(one, self.engine.device) for one in batches]
        batch = batches[0]
        if isinstance(self.problem, Stepper):
            return self.finite(self.advance(self.problem, batch))
        if self.factor is not None:
            factor = self.factor(self.at.step)
            for group in self.optimizer.param_groups:
                own = self.own_factor if group.get("own_schedule") else None
                group["lr"] = group["initial_lr"] * (factor if own is None else own(self.at.step))
        value = self.finite(self.gradients(batch) if len(batches) == 1 else self.accumulated(batches))
        self.descent.update()
        return value

    def accumulated(self, batches: list[Batch]) -> float:
        """Gradients over several batches, weighted by their samples; penalties count once."""
        sizes = [len(next(leaves(batch))) for batch in batches]
        weights = [len(batches) * size / sum(sizes) for size in sizes]
        pairs = zip(batches, weights, strict=True)
        return sum(self.gradients(batch, weight, 1 / len(batches)) for batch, weight in pairs)

    def gradients(self, batch: Batch, weight: float = 1.0, scale: float = 1.0) -> float:
        """Gradients of a batch, or of this process's part of it: all do what one would do on the whole."""
        if self.engine.world == 1:
            return self.descent.gradients(batch, *([] if weight == 1.0 else [weight]), scale=scale)
        shard, own, rows = share(batch, self.engine.rank, self.engine.world)
        with Together(*rows) if rows[:2] != (0, rows[2]) else contextlib.nullcontext():
            return self.descent.gradients(shard, own * weight, scale=scale)

    def advance(self, problem: Stepper, batch: Batch) -> float:
        """A step that the problem takes by itself."""
        if not self.counted:
            return problem.advance(batch, self.context()).item()
        values: list[float] = []
        flops = count(lambda: values.append(problem.advance(batch, self.context()).item()))
        self.at.flops += float(self.engine.total(torch.tensor(float(flops), dtype=torch.float64)))
        return values[0]

    def context(self) -> StepContext:
        """Where the next step stands, for a problem that takes it by itself."""
        at, batches = self.at, self.train.steps()
        t = at.step / max(1, self.total - 1)
        last = at.batch + 1 >= batches or at.step + 1 >= self.total
        rate = 1.0 if self.factor is None else self.factor(at.step)
        return StepContext(t, rate, at.batch, batches, last, self.engine.rank, self.engine.world)

    def finite(self, value: float) -> float:
        """The objective, if it is a number."""
        if not math.isfinite(value):
            raise DivergedError(self.diverged(value))
        return value

    def diverged(self, value: float) -> str:
        """What to say when the objective is not a number."""
        at, name = self.at, self.settings.name
        return (
            f"the objective is {value} at step {at.step} (epoch {at.epoch + 1} of fit {name!r}): "
            "lower the learning rate, set clip=1.0 or look for bad samples."
        )

    def end_epoch(self, hooks: Hooks) -> None:
        """Evaluate, ask the rule, write a row."""
        at, started = self.at, time.perf_counter()
        steps = at.batch
        loss = self.engine.mean(at.loss) / max(1, steps)
        at.epoch, at.batch, at.loss = at.epoch + 1, 0, 0.0
        score = None if self.valid is None else evaluate(self.problem, self.valid, self.engine, self.metric)
        judged = score or Score(loss, loss, higher_is_better=False)
        stop = self.rule.update(self.monitored(judged))
        stop |= isinstance(self.problem, Stepper) and self.problem.converged
        if at.step >= self.total:
            at.stopped = "cap"
        elif stop:
            at.stopped = "rule"
        self.remember(judged)
        at.seconds += time.perf_counter() - started
        kept = at.score is judged
        row: HistoryRow = {
            "epoch": at.epoch,
            "step": at.step,
            "train_loss": loss,
            "kept": kept,
            **self.columns(score),
        }
        hooks.row(row)
        if not at.stopped:
            hooks.pause(self)

    def monitored(self, score: Score) -> float:
        """The number the rule watches."""
        if self.rule.watches == "grad_norm":
            return gradient_norm(self.problem, self.train, self.engine)
        return score.loss

    def remember(self, score: Score) -> None:
        """Keep the weights that ``keep`` names."""
        at = self.at
        if self.keep == "last":
            at.score = score
        elif score.better_than(at.score):
            at.best, at.score = snapshot(self.problem), score
        if at.epoch in self.settings.remember:
            at.remembered[at.epoch] = snapshot(self.problem)

    def columns(self, score: Score | None) -> HistoryRow:
        """The other numbers of a row."""
        row: HistoryRow = {
            "valid_loss": score.loss if score else None,
            "metric": score.metric if score else None,
            "lr": self.optimizer.param_groups[0]["lr"],
        }
        if self.settings.preview is not None and self.valid is not None and score is not None:
            projected = self.settings.preview(self.problem)
            hard = evaluate(projected, self.valid, self.engine, self.metric)
            row |= {
                "projected_loss": hard.loss,
                "projected_metric": hard.metric,
                "gap": hard.loss - score.loss,
            }
        if self.settings.log is not None:
            row |= self.settings.log(self.problem)
            self.at.flops += self.log_flops
        return row

    def state(self) -> StateTree:
        """Everything a continued fit needs."""
        position = dataclasses.asdict(dataclasses.replace(self.at, score=None, best=None, remembered={}))
        position |= {"best": self.at.best, "remembered": self.at.remembered}
        position["score"] = None if self.at.score is None else dataclasses.asdict(self.at.score)
        return {
            "problem": self.problem.state_dict(),
            "stored": record_state(self.problem),
            "optimizer": self.optimizer.state_dict(),
            "rule": self.rule.state(),
            "position": position,
            "rng": rng.capture(),
            "source": self.train.state(),
        }

    def restore(self, state: StateTree) -> None:
        """Continue from :meth:`state`."""
        self.problem.load_state_dict(state["problem"])
        load_record_state(self.problem, state["stored"])
        restore_optimizer(self.optimizer, state["optimizer"])
        self.rule.restore(state["rule"])
        position = dict(state["position"])
        position["score"] = None if position["score"] is None else Score(**position["score"])
        self.at = Position(**position)
        rng.restore(state["rng"])
        self.train.restore(state["source"])


def snapshot(problem: Problem) -> StateTree:
    """A copy of the state, tied tensors tied."""
    return copy.deepcopy(problem.state_dict())
