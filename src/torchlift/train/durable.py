"""Durable ``fit``: finished calls replay from their end state, an interrupted one continues.

Every call inside a run is numbered and recorded in ``fits/<n>/``. Because ``lift`` and ``project`` are
deterministic given weights and random streams, a recipe with any control flow resumes bit for bit
without knowing about it: it simply runs again, and its finished fits return at once.
"""

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, Unpack

import torch

from torchlift.core import Batch, Fit, Lift, Problem, nodes
from torchlift.errors import BudgetError, CheckpointError
from torchlift.train import rng
from torchlift.train.batches import Source
from torchlift.train.cost import count
from torchlift.train.engines import Engine
from torchlift.train.evaluation import Metric, Score, evaluate
from torchlift.train.history import History, Row
from torchlift.train.loop import Hooks, Loop, Tree
from torchlift.train.progress import Progress
from torchlift.train.settings import Choices, Settings
from torchlift.train.store import Store
from torchlift.tree import move

LOG = logging.getLogger("torchlift")


class Interrupted(KeyboardInterrupt):
    """A run asked to stop by a signal, after saving what it could; its message says how to go on."""

    saved = True
    """Whether there is a checkpoint to go on from."""


@dataclasses.dataclass(frozen=True)
class Fitted:
    """How a fit ended."""

    rows: list[Row]
    score: Score | None
    """Of the weights that were kept."""
    epochs: int
    stopped: str
    remembered: dict[int, Tree]
    optimizer: Tree

    def tree(self) -> Tree:
        """As a checkpoint holds it: without its rows, which are in the history."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        del fields["rows"]
        return fields | {"score": self.score and dataclasses.asdict(self.score)}

    @classmethod
    def from_tree(cls, tree: Tree, rows: list[Row]) -> "Fitted":
        """The inverse of :meth:`tree`."""
        fields: Tree = {**tree, "rows": rows}
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
    listeners: tuple[Callable[[Row], None], ...] = ()
    phases: list[Row] = dataclasses.field(default_factory=list[Row])
    """What each fit optimized, in order."""


class DurableFit(Fit):
    """``fit(problem, **settings)``: minimize the problem in place, once, whatever happens in between.

    A branch (:meth:`branch`) is a fit inside another: it numbers its calls from zero in a folder of its own,
    has a share of the budget, and its bill is part of the whole's.
    """

    def __init__(
        self,
        run: Run,
        *,
        whole: "DurableFit | None" = None,
        share: float = 1.0,
        prefix: str = "",
        path: tuple[int, ...] = (),
        settings: Settings | None = None,
    ) -> None:
        self.run, self.whole, self.share, self.prefix, self.path = run, whole, share, prefix, path
        self.settings = settings or run.settings
        self.store = run.store if whole is None else whole.store and whole.store.inside(path[-1])
        self.epochs, self.steps = share * run.epochs, run.train.steps()
        self.calls = 0
        self.flops = 0.0
        self.seconds = 0.0
        self.change = 0.0
        """What fits have left of their allowances because it did not pay for another step."""
        self.first = 0
        """Rows of the history before the fit at hand."""

    def __call__(self, problem: Problem, **choices: Unpack[Choices]) -> Fitted:
        """Train the problem; see :class:`Settings` for what may be chosen."""
        settings = self.settings.changed(choices)
        settings = dataclasses.replace(settings, name=self.prefix + settings.name)
        self.run.phases.append(phase(settings.name, problem))
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
            LOG.warning("fit %r: nothing is left of the budget, so it takes no step.", settings.name)
        self.change = loop.change
        optimizer = loop.optimizer.state_dict()
        rows = self.run.history.rows[self.first :]
        fitted = Fitted(rows, at.score, at.epoch, at.stopped, at.remembered, optimizer)
        self.finish(settings.name, problem, fitted, at.flops, at.seconds)
        return fitted

    def once(
        self, name: str, function: Callable[[Problem], object], problem: Problem, flops: float = 0.0
    ) -> None:
        """A durable step that is no fit: ``function(problem)`` changes the problem in place, once.

        ``flops`` is what it will cost at least: at equal cost, more than is left is an error beforehand.
        """
        name = self.prefix + name
        if self.finished(name, problem) is not None:
            return
        if flops > max(0.0, self.left()):
            need, have = flops / self.run.unit, max(0.0, self.left()) / self.run.unit
            raise BudgetError(
                f"{name!r} costs {need:.3g} plain epochs and {have:.3g} are left of the budget: raise it."
            )
        started = time.perf_counter()
        spent = count(lambda: function(problem))
        self.first = len(self.run.history.rows)
        ended = Fitted([], None, 0, "cap", {}, {})
        self.finish(name, problem, ended, spent, time.perf_counter() - started)

    def lift(self, lift: Lift, problem: Problem) -> Problem:
        """``lift.lift(problem, fit)``, with what it computes on the bill."""
        found: list[Problem] = []
        started = time.perf_counter()
        flops = count(lambda: found.append(lift.lift(problem, self)))
        self.spend(flops, time.perf_counter() - started)
        return found[0]

    def branch(self, name: str, share: float = 1.0, **settings: Any) -> "DurableFit":
        """A fit of its own for a part of the work, with its share of this one's budget and its settings."""
        if not 0 < share <= 1:
            raise BudgetError(f"branch {name!r}: a share of the budget lies in (0, 1], got {share}.")
        number, self.calls = self.calls, self.calls + 1
        prefix, path = f"{self.prefix}{name}: ", (*self.path, number)
        chosen = self.settings.changed(settings)
        return DurableFit(
            self.run, whole=self, share=share * self.share, prefix=prefix, path=path, settings=chosen
        )

    def tell(self, name: str, words: str, problem: Problem) -> None:
        """A line for the report, among what was optimized."""
        self.run.phases.append(phase(self.prefix + name, problem) | {"what": [words], "where": []})

    def stage(self, name: str, problem: Problem, **sizes: float) -> None:
        """For the report: what the run has cost, and what the network is, after a stage of a chain."""
        flops, seconds = self.bill()
        score = self.evaluate(problem)
        row: Row = {"stage": self.prefix + name, "cost": flops / self.run.unit, "seconds": seconds}
        self.run.phases.append(row | {"loss": score.loss, "metric": score.metric} | sizes)

    def left(self) -> float:
        """FLOPs that may still be spent: without equal cost there is no end."""
        if not self.run.equal_cost:
            return math.inf
        own = self.epochs * self.run.unit - self.flops
        return own if self.whole is None else min(own, self.whole.left())

    def evaluate(self, problem: Problem) -> Score:
        """On the validation data, or the training data where there are none."""
        run = self.run
        return evaluate(problem, run.valid or run.train, run.engine, run.metric)

    def batches(self) -> Iterator[Batch]:
        """The training data, once, in order, unchanged."""
        return (move(batch, self.run.engine.device) for batch in self.run.train.ordered())

    def loop(self, problem: Problem, settings: Settings) -> Loop:
        """The fit at hand."""
        run = self.run
        rule = settings.rule(self.epochs, self.share)
        return Loop(
            problem,
            settings,
            rule,
            run.train,
            run.valid,
            run.engine,
            seed=rng.key(run.seed, *self.path, self.calls),
            metric=run.metric,
            allowance=min(rule.cap * run.unit + self.change, self.left()) if run.equal_cost else None,
        )

    def hooks(self, loop: Loop) -> Hooks:
        """Rows to the history, steps to the bar, checkpoints to the disk."""
        saved = [time.monotonic()]
        run = self.run
        flops, seconds = self.bill()

        def row(row: Row) -> None:
            number = ".".join(map(str, (*self.path, self.calls))) if self.path else self.calls
            head: Row = {"fit": number, "phase": loop.settings.name}
            row |= {"cost": (flops + loop.at.flops) / run.unit, "seconds": seconds + loop.at.seconds}
            run.history.append(head | row)
            for listener in run.listeners:
                listener(head | row)
            run.progress.update(loop.at.step, note(row))

        def pause(loop: Loop) -> None:
            due = time.monotonic() - saved[0] >= run.save_every
            stop, due = self.agreed(run.interrupted(), due, loop)
            savable = run.train.skips or loop.at.batch == 0
            if self.store is not None and savable and (stop or due):
                self.store.save(self.calls, loop.at.step, self.tree(loop), run.engine)
                saved[0] = time.monotonic()
            if stop:
                raise Interrupted

        return Hooks(row, run.progress.update, pause)

    def agreed(self, stop: bool, due: bool, loop: Loop) -> tuple[bool, bool]:
        """Whether to stop here, and to save: several processes ask one another, once an epoch."""
        engine = self.run.engine
        if engine.world == 1:
            return stop, due
        if loop.at.batch:
            return False, False
        asked = engine.total(torch.tensor([float(stop), float(due)])).tolist()
        return asked[0] > 0, asked[1] > 0

    def tree(self, loop: Loop) -> Tree:
        """A checkpoint inside a fit."""
        place = {"name": loop.settings.name, "first": self.first, "history": self.run.history.mark()}
        return loop.state() | place

    def resume(self, loop: Loop) -> None:
        """Go on from the last checkpoint of this fit, if there is one."""
        history = self.run.history
        state = None if self.store is None else self.store.latest(self.calls)
        if state is None:
            self.first = len(history.rows)
            history.cut()
            return
        self.same(loop.settings.name, state)
        loop.restore(state)
        self.first = state["first"]
        history.rewind(state["history"])

    def finished(self, name: str, problem: Problem) -> Fitted | None:
        """Replay a call that ended in an earlier life of this run."""
        state = None if self.store is None else self.store.final(self.calls)
        if state is None:
            return None
        self.same(name, state)
        problem.load_state_dict(state["problem"])
        problem.eval()
        rng.restore(state["rng"])
        self.run.train.restore(state["source"])
        self.calls += 1
        self.change = state["change"]
        self.spend(state["flops"], state["seconds"])
        rows = self.run.history.slice(state["first"], state["history"]["rows"])
        self.run.history.rewind(state["history"], cut=False)  # what comes next knows how much stays
        return Fitted.from_tree(state["fitted"], rows)

    def finish(self, name: str, problem: Problem, fitted: Fitted, flops: float, seconds: float) -> None:
        """Record the end state and what it cost."""
        if self.store is not None:
            tree = {
                "name": name,
                "problem": problem.state_dict(),
                "rng": rng.capture(),
                "flops": flops,
                "seconds": seconds,
                "change": self.change,
                "first": self.first,
                "history": self.run.history.mark(),
                "source": self.run.train.state(),
                "fitted": fitted.tree(),
            }
            self.store.finish(self.calls, tree, self.run.engine)
        self.calls += 1
        self.spend(flops, seconds)

    def spend(self, flops: float, seconds: float) -> None:
        """Add to the bill, and to the whole's."""
        self.flops += flops
        self.seconds += seconds
        if self.whole is not None:
            self.whole.spend(flops, seconds)

    def bill(self) -> tuple[float, float]:
        """FLOPs and seconds of the whole run so far."""
        return (self.flops, self.seconds) if self.whole is None else self.whole.bill()

    def same(self, name: str, state: Tree) -> None:
        """Refuse a record that another recipe made."""
        if state["name"] != name:
            raise CheckpointError(
                f"fit {self.calls} of this folder is {state['name']!r}, the recipe now asks for {name!r}: "
                "resume with the recipe that made it, or start anew with overwrite=True."
            )


def phase(name: str, problem: Problem) -> Row:
    """What a fit optimizes: the lifted places and the number of coordinates."""
    lifted = list(nodes(problem))
    return {
        "phase": name,
        "what": sorted({type(node).__name__ for _, node in lifted}) or [type(problem).__name__],
        "where": [place for place, _ in lifted],
        "parameters": sum(p.numel() for p in problem.parameters() if p.requires_grad),
    }


def note(row: Row) -> str:
    """A row in a few words, for the bar."""
    shown = {"loss": row["train_loss"], "valid": row["valid_loss"], "metric": row["metric"]}
    words = [f"{name} {value:.4g}" for name, value in shown.items() if value is not None]
    return f"epoch {row['epoch']}  " + "  ".join(words)
