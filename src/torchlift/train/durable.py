"""Durable ``fit``: finished calls replay from their end state, an interrupted one continues.

Every call inside a run is numbered and recorded in ``fits/<n>/``. Because ``lift`` and ``project`` are
deterministic given weights and random streams, a recipe with any control flow resumes bit for bit
without knowing about it: it simply runs again, and its finished fits return at once.
"""

import copy
import dataclasses
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import torch

from torchlift.core import Batch, Fit, Lift, Problem, Span, dials, nodes
from torchlift.core.selection import reaching
from torchlift.core.stored import load_record_state, record_state
from torchlift.errors import BudgetError, CheckpointError
from torchlift.train import rng
from torchlift.train.batches import Source, example
from torchlift.train.cost import count
from torchlift.train.engines import Engine
from torchlift.train.evaluation import Metric, Score, evaluate
from torchlift.train.history import History, HistoryRow
from torchlift.train.loop import Hooks, Loop, StateTree
from torchlift.train.progress import Progress
from torchlift.train.settings import Settings
from torchlift.train.store import Store
from torchlift.tree import move

LOG = logging.getLogger("torchlift")
T = TypeVar("T")


class Interrupted(KeyboardInterrupt):
    """A run stopped by a signal, after saving what it could; its message says how to go on."""

    saved = True
    """Whether there is a checkpoint to go on from."""


@dataclasses.dataclass(frozen=True)
class Fitted:
    """How a fit ended."""

    rows: list[HistoryRow]
    score: Score | None
    """Of the weights that were kept."""
    epochs: int
    stopped: str
    remembered: dict[int, StateTree]
    optimizer: StateTree

    def tree(self) -> StateTree:
        """As a checkpoint holds it: without its rows, which are in the history."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        del fields["rows"]
        return fields | {"score": self.score and dataclasses.asdict(self.score)}

    @classmethod
    def from_tree(cls, tree: StateTree, rows: list[HistoryRow]) -> "Fitted":
        """The inverse of :meth:`tree`."""
        fields: StateTree = {**tree, "rows": rows}
        fields["score"] = fields["score"] and Score(**fields["score"])
        return cls(**fields)

    @property
    def valid_loss(self) -> float:
        """Loss of the kept weights (on training data where there are no validation data)."""
        return self.score.loss if self.score else float("nan")

    @property
    def metric(self) -> float:
        """Metric of the kept weights."""
        return self.score.metric if self.score else float("nan")


@dataclasses.dataclass
class Run:
    """What all fits of a run share."""

    train: Source
    valid: Source | None
    engine: Engine
    settings: Settings
    epochs: float
    seed: int = 0
    metric: Metric | None = None
    metrics: Mapping[str, Metric | None] = dataclasses.field(default_factory=dict[str, "Metric | None"])
    """More of them, for the rows of the history."""
    store: Store | None = None
    history: History = dataclasses.field(default_factory=History)
    progress: Progress = dataclasses.field(default_factory=lambda: Progress(False))
    unit: float = 1.0
    """FLOPs of one plain epoch."""
    equal_cost: bool = False
    """Whether epochs mean the cost of a plain epoch, not passes over the data."""
    save_every: float = 20.0
    """Seconds between checkpoints inside a fit."""
    interrupted: Callable[[], bool] = lambda: False
    listeners: tuple[Callable[[HistoryRow], object], ...] = ()
    phases: list[HistoryRow] = dataclasses.field(default_factory=list[HistoryRow])
    """What each fit optimized, in order."""
    idle_globs: set[str] = dataclasses.field(default_factory=set[str])
    """Globs of the user's groups that no fit has had a parameter for yet."""


@dataclasses.dataclass
class Stretch:
    """A stretch of the schedule that several fits follow once, in turn."""

    start: float
    end: float

    def __post_init__(self) -> None:
        self.at = self.start

    def take(self, share: float) -> Span:
        """The next ``share`` of it, never past its end."""
        start, self.at = self.at, min(self.end, self.at + share * (self.end - self.start))
        return start, self.at

    def within(self, span: Span) -> Span:
        """A stretch of this one, given by its own start and end; what is taken next comes behind it."""
        start, end = (self.start + end_point * (self.end - self.start) for end_point in span)
        self.at = end
        return start, end


class Account:
    """What a fit has done so far: its calls, what they cost, and where in the schedule it is."""

    def __init__(self, parent: "Account | None" = None, stretch: Stretch | None = None) -> None:
        self.parent, self.stretch = parent, stretch
        self.calls = 0
        self.flops = 0.0
        self.seconds = 0.0
        self.unspent = 0.0
        """What fits have left of their allowances because it did not pay for another step."""
        self.first = 0
        """Rows of the history before the fit at hand."""

    def spend(self, flops: float, seconds: float) -> None:
        """Count what was spent, here and in all accounts above."""
        self.flops += flops
        self.seconds += seconds
        if self.parent is not None:
            self.parent.spend(flops, seconds)

    def total(self) -> tuple[float, float]:
        """FLOPs and seconds of the whole run so far."""
        return (self.flops, self.seconds) if self.parent is None else self.parent.total()


class DurableFit(Fit):
    """``fit(problem, **settings)``: minimize the problem in place, once, whatever happens in between.

    A branch (:meth:`branch`) is a fit inside another: it numbers its calls from zero in a folder of its own,
    has a share of the budget, and what it spends is spent by the whole.
    """

    settings: Settings

    def __init__(
        self,
        run: Run,
        *,
        whole: "DurableFit | None" = None,
        share: float = 1.0,
        prefix: str = "",
        path: tuple[int, ...] = (),
        settings: Settings | None = None,
        span: Span | None = None,
    ) -> None:
        self.run, self.whole, self.share, self.prefix, self.path = run, whole, share, prefix, path
        self.settings = settings or run.settings
        self.store = run.store if whole is None else whole.store and whole.store.inside(path[-1])
        self.epochs, self.steps, self.span = share * run.epochs, run.train.steps(), span
        parent = None if whole is None else whole.account
        self.account = Account(parent, None if span is None else Stretch(*span))

    def __call__(self, problem: Problem, **choices: Any) -> Fitted:
        """Train the problem; see :class:`Settings` for what may be chosen."""
        settings = self.settings.changed(choices)
        span = self.covered(settings, choices.get("span"))
        settings = dataclasses.replace(settings, name=self.prefix + settings.name, span=span)
        self.run.phases.append(phase(settings.name, problem))
        self.run.idle_globs -= reaching(self.run.idle_globs, problem)
        done = self.finished(settings.name, problem)
        if done is not None:
            return done
        loop = self.loop(problem, settings)
        self.resume(loop)
        self.run.progress.start(settings.name, loop.total, loop.at.step)
        try:
            loop.run(self.hooks(loop))
        finally:
            self.run.progress.stop()
            self.run.history.flush()
        at = loop.at
        if at.stopped == "budget":
            LOG.warning("fit %r: the budget is spent, so it takes no step.", settings.name)
        self.account.unspent = loop.unspent
        optimizer = loop.optimizer.state_dict()
        rows = self.run.history.rows[self.account.first :]
        fitted = Fitted(rows, at.score, at.epoch, at.stopped, at.remembered, optimizer)
        records = record_state(problem)
        outcome = {"problem": problem.state_dict(), "stored": records, "fitted": fitted.tree()}
        self.finish(settings.name, outcome, at.flops, at.seconds)
        return fitted

    def covered(self, settings: Settings, span: Span | None) -> Span:
        """The stretch of the schedule that a call covers: its own, or the next in turn.

        Where calls follow one stretch, each covers as much of it as its share of the budget; one that lasts
        until a rule says so, what its share (all, unless given) would be.
        """
        stretch = self.account.stretch
        if stretch is None:
            return settings.span
        if span is not None:
            return stretch.within(span)
        return stretch.take(settings.share if settings.epochs is None else settings.epochs / self.run.epochs)

    def using(self, **settings: Any) -> "DurableFit":
        """This fit, its numbering and its budget, with other defaults."""
        other = copy.copy(self)
        other.settings = self.settings.changed(settings)
        return other

    def remember(self, name: str, function: Callable[[], T], flops: float = 0.0) -> T:
        """``function()``, computed once in the life of a run: a resumed one gets the same value back."""
        name = self.prefix + name
        state = self.replayed(name)
        if state is not None:
            return move(state["value"], self.run.engine.device)
        if flops > max(0.0, self.left()):
            need, have = flops / self.run.unit, max(0.0, self.left()) / self.run.unit
            raise BudgetError(
                f"{name!r} costs {need:.3g} plain epochs and {have:.3g} are left of the budget: raise it."
            )
        values: list[T] = []
        started = time.perf_counter()
        spent = count(lambda: values.append(function()))
        self.account.first = len(self.run.history.rows)
        self.finish(name, {"value": values[0]}, spent, time.perf_counter() - started)
        return values[0]

    def lift(self, lift: Lift, problem: Problem) -> Problem:
        """``lift.lift(problem, fit)``, with what it computes counted."""
        lifted: list[Problem] = []
        started = time.perf_counter()
        flops = count(lambda: lifted.append(lift.lift(problem, self)))
        self.account.spend(flops, time.perf_counter() - started)
        return lifted[0]

    def branch(
        self, name: str, share: float = 1.0, span: Span | None = None, **settings: Any
    ) -> "DurableFit":
        """A fit of its own for one stage, with its share of this one's budget and its own defaults.

        ``span``: the stretch of this fit's schedule that its calls follow once. Where this fit follows one
        itself, a branch without ``span`` covers the next ``share`` of it.
        """
        if not 0 < share <= (1 if self.run.equal_cost else math.inf):
            raise BudgetError(f"branch {name!r}: a share of the budget lies in (0, 1], got {share}.")
        stretch = self.account.stretch
        if stretch is not None:
            span = stretch.take(share) if span is None else stretch.within(span)
        number, self.account.calls = self.account.calls, self.account.calls + 1
        return DurableFit(
            self.run,
            whole=self,
            share=share * self.share,
            prefix=f"{self.prefix}{name}: ",
            path=(*self.path, number),
            settings=self.settings.changed(settings),
            span=span,
        )

    def report(self, name: str, problem: Problem, words: str = "", **sizes: float) -> None:
        """A line among what was optimized, in ``words``; without any, what the run has cost so far and what
        the network is worth, with ``sizes`` beside."""
        if words:
            self.run.phases.append(phase(self.prefix + name, problem) | {"what": [words], "where": []})
            return
        flops, seconds = self.account.total()
        score = self.evaluate(problem)
        row: HistoryRow = {"stage": self.prefix + name, "cost": flops / self.run.unit, "seconds": seconds}
        self.run.phases.append(row | {"loss": score.loss, "metric": score.metric} | sizes)

    def left(self) -> float:
        """FLOPs that may still be spent: without equal cost there is no end."""
        if not self.run.equal_cost:
            return math.inf
        own = self.epochs * self.run.unit - self.account.flops
        return own if self.whole is None else min(own, self.whole.left())

    def evaluate(self, problem: Problem) -> Score:
        """On the validation data, or the training data where there are none."""
        run = self.run
        return evaluate(problem, run.valid or run.train, run.engine, run.metric)

    def batches(self) -> Iterator[Batch]:
        """The training data, once, in order, unchanged."""
        return (move(batch, self.run.engine.device) for batch in self.run.train.ordered())

    def example(self) -> Batch:
        """A batch of the size that steps take."""
        return move(example(self.run.train), self.run.engine.device)

    def loop(self, problem: Problem, settings: Settings) -> Loop:
        """The fit at hand."""
        run = self.run
        if any(dial.moves for dial in dials(problem)):
            settings = dataclasses.replace(settings, patience=None)
        rule = settings.rule(self.epochs, self.share)
        return Loop(
            problem,
            settings,
            rule,
            run.train,
            run.valid,
            run.engine,
            seed=rng.key(run.seed, *self.path, self.account.calls),
            metric=run.metric,
            allowance=(
                min(rule.cap * run.unit + self.account.unspent, self.left()) if run.equal_cost else None
            ),
            free=run.unit / self.steps if len(run.phases) == 1 else 0.0,  # plain training tries a step too
            plain=run.unit / self.steps,
        )

    def hooks(self, loop: Loop) -> Hooks:
        """Rows to the history, steps to the bar, checkpoints to the disk."""
        saved = [time.monotonic()]
        run = self.run
        flops, seconds = self.account.total()
        call = self.account.calls

        def row(row: HistoryRow) -> None:
            number = ".".join(map(str, (*self.path, call))) if self.path else call
            head: HistoryRow = {"fit": number, "phase": loop.settings.name}
            row |= {"cost": (flops + loop.at.flops) / run.unit, "seconds": seconds + loop.at.seconds}
            row |= self.measured(loop.problem)
            run.history.append(head | row)
            for listener in run.listeners:
                listener(head | row)
            run.progress.update(loop.at.step, note(row))

        def pause(loop: Loop) -> None:
            due = time.monotonic() - saved[0] >= run.save_every
            stop, due = self.agreed(run.interrupted(), due, loop)
            savable = run.train.skips or loop.at.batch == 0
            if self.store is not None and savable and (stop or due):
                self.store.save(call, loop.at.step, self.tree(loop), run.engine)
                saved[0] = time.monotonic()
            if stop:
                raise Interrupted

        return Hooks(row, run.progress.update, pause)

    def measured(self, problem: Problem) -> HistoryRow:
        """The metrics of the run by name, on the validation data."""
        run = self.run
        if run.valid is None:
            return {}
        return {n: evaluate(problem, run.valid, run.engine, m).metric for n, m in run.metrics.items()}

    def agreed(self, stop: bool, due: bool, loop: Loop) -> tuple[bool, bool]:
        """Whether to stop here, and to save: several processes ask one another, once an epoch."""
        engine = self.run.engine
        if engine.world == 1:
            return stop, due
        if loop.at.batch:
            return False, False
        votes = engine.total(torch.tensor([float(stop), float(due)])).tolist()
        return votes[0] > 0, votes[1] > 0

    def tree(self, loop: Loop) -> StateTree:
        """A checkpoint inside a fit."""
        position = {
            "name": loop.settings.name,
            "first": self.account.first,
            "history": self.run.history.mark(),
        }
        return loop.state() | position

    def resume(self, loop: Loop) -> None:
        """Go on from the last checkpoint of this fit, if there is one."""
        history = self.run.history
        state = None if self.store is None else self.store.latest(self.account.calls)
        if state is None:
            self.account.first = len(history.rows)
            history.cut()
            return
        self.same(loop.settings.name, state)
        loop.restore(state)
        self.account.first = state["first"]
        history.rewind(state["history"])

    def finished(self, name: str, problem: Problem) -> Fitted | None:
        """How a fit ended in an earlier life of this run, and the problem as it was then."""
        state = self.replayed(name)
        if state is None:
            return None
        problem.load_state_dict(state["problem"])
        load_record_state(problem, state["stored"])
        problem.eval()
        rows = self.run.history.slice(state["first"], state["history"]["rows"])
        return Fitted.from_tree(state["fitted"], rows)

    def replayed(self, name: str) -> StateTree | None:
        """The record of a call that ended earlier in this run; everything stands as it did then."""
        account = self.account
        state = None if self.store is None else self.store.final(account.calls)
        if state is None:
            return None
        self.same(name, state)
        rng.restore(state["rng"])
        self.run.train.restore(state["source"])
        account.calls += 1
        account.unspent = state["unspent"]
        account.spend(state["flops"], state["seconds"])
        self.run.history.rewind(state["history"], cut=False)  # what comes next knows how much stays
        return state

    def finish(self, name: str, outcome: StateTree, flops: float, seconds: float) -> None:
        """Record the outcome of a call and what it cost."""
        account = self.account
        if self.store is not None:
            tree = {
                "name": name,
                "rng": rng.capture(),
                "flops": flops,
                "seconds": seconds,
                "unspent": account.unspent,
                "first": account.first,
                "history": self.run.history.mark(),
                "source": self.run.train.state(),
            }
            self.store.finish(account.calls, tree | outcome, self.run.engine)
        account.calls += 1
        account.spend(flops, seconds)

    def same(self, name: str, state: StateTree) -> None:
        """Raise for a record that another recipe made."""
        if state["name"] != name:
            raise CheckpointError(
                f"fit {self.account.calls} of this folder is {state['name']!r}, but this recipe's is "
                f"{name!r}: resume with the recipe of the run, or start again with overwrite=True."
            )


def phase(name: str, problem: Problem) -> HistoryRow:
    """What a fit optimizes: the lifted places and the number of coordinates."""
    lifted = list(nodes(problem))
    return {
        "phase": name,
        "what": sorted({type(node).__name__ for _, node in lifted}) or [type(problem).__name__],
        "where": [where for where, _ in lifted],
        "parameters": sum(p.numel() for p in problem.parameters() if p.requires_grad),
    }


def note(row: HistoryRow) -> str:
    """A row in a few words, for the bar."""
    shown = {"loss": row["train_loss"], "valid": row["valid_loss"], "metric": row["metric"]}
    words = [f"{name} {value:.4g}" for name, value in shown.items() if value is not None]
    return f"epoch {row['epoch']}  " + "  ".join(words)
