"""Durable ``fit``: finished calls replay from their end state, an interrupted one continues.

Every call inside a run is numbered and recorded in ``fits/<n>/``. Because ``lift`` and ``project`` are
deterministic given weights and random streams, a recipe with any control flow resumes bit for bit
without knowing about it: it simply runs again, and its finished fits return at once.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchlift.core import Batch, CheckpointError, Lift, Problem, nodes
from torchlift.train import rng
from torchlift.train.batches import Source, move
from torchlift.train.cost import count
from torchlift.train.engines import Engine
from torchlift.train.evaluation import Metric, Score, evaluate
from torchlift.train.history import History, Row
from torchlift.train.loop import Fitting, Hooks, Tree
from torchlift.train.progress import Progress
from torchlift.train.settings import Settings
from torchlift.train.store import Store


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
    hold: Lift | None = None
    """Applied around every fit: keeps exact zeros where they are."""
    unit: float = 1.0
    """FLOPs of one plain epoch."""
    equal_cost: bool = False
    """Whether epochs mean the cost of a plain epoch, not passes over the data."""
    save_every: float = 20.0
    """Seconds between checkpoints inside a fit."""
    interrupted: Callable[[], bool] = lambda: False
    listeners: tuple[Callable[[Row], None], ...] = ()


class Fit:
    """``fit(problem, **settings)``: minimise the problem in place, once, whatever happens in between."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.calls = 0
        self.flops = 0.0
        self.seconds = 0.0
        self.phases: list[Row] = []
        self.first = 0
        """Rows of the history before the fit at hand."""

    @property
    def epochs(self) -> float:
        """The run's budget."""
        return self.run.epochs

    @property
    def steps(self) -> int:
        """Steps in an epoch."""
        return self.run.train.steps()

    def __call__(self, problem: Problem, **changes: Any) -> Fitted:
        """Train the problem; see :class:`Settings` for what may be chosen."""
        settings = self.run.settings.changed(changes)
        self.phases.append(phase(settings.name, problem))
        done = self.finished(settings.name, problem)
        if done is not None:
            return done
        run, hold = self.run, self.run.hold
        target = problem if hold is None else hold.lift(problem)
        fitting = self.fitting(target, settings)
        self.resume(fitting)
        run.progress.start(settings.name, fitting.total, fitting.at.step)
        try:
            fitting.run(self.hooks(fitting))
        finally:
            run.progress.stop()
        if hold is not None:
            problem.load_state_dict(hold.project(target).state_dict())
            problem.eval()
        at = fitting.at
        self.spend(at.flops, at.seconds)
        optimizer = fitting.optimizer.state_dict()
        rows = run.history.rows[self.first :]
        fitted = Fitted(rows, at.score, at.epoch, at.stopped, at.remembered, optimizer)
        self.finish(settings.name, problem, fitted)
        return fitted

    def once(self, name: str, function: Callable[[Problem], object], problem: Problem) -> None:
        """A durable step that is no fit: ``function(problem)`` changes the problem in place, once."""
        if self.finished(name, problem) is None:
            started = time.perf_counter()
            flops = count(lambda: function(problem))
            self.spend(flops, time.perf_counter() - started)
            self.first = len(self.run.history.rows)
            self.finish(name, problem, Fitted([], None, 0, "cap", {}, {}))

    def evaluate(self, problem: Problem) -> Score:
        """On the validation data, or the training data where there are none."""
        run = self.run
        return evaluate(problem, run.valid or run.train, run.engine, run.metric)

    def batches(self) -> Iterator[Batch]:
        """The training data, once, in order, unchanged."""
        return (move(batch, self.run.engine.device) for batch in self.run.train.ordered())

    def fitting(self, problem: Problem, settings: Settings) -> Fitting:
        """The fit at hand."""
        run = self.run
        return Fitting(
            problem,
            settings,
            settings.rule(run.epochs),
            run.train,
            run.valid,
            run.engine,
            seed=rng.key(run.seed, self.calls),
            metric=run.metric,
            unit=run.unit if run.equal_cost else None,
            limit=run.epochs * run.unit - self.flops,
        )

    def hooks(self, fitting: Fitting) -> Hooks:
        """Rows to the history, steps to the bar, checkpoints to the disk."""
        saved = [time.monotonic()]
        run = self.run

        def row(row: Row) -> None:
            spent = (self.flops + fitting.at.flops) / run.unit
            head: Row = {"fit": self.calls, "phase": fitting.settings.name}
            row |= {"cost": spent, "seconds": self.seconds + fitting.at.seconds}
            run.history.append(head | row)
            for listener in run.listeners:
                listener(head | row)
            run.progress.update(fitting.at.step, note(row))

        def pause(fitting: Fitting) -> None:
            stop = self.agreed(run.interrupted(), fitting)
            savable = run.train.skips or fitting.at.batch == 0
            if run.store is not None and savable and (stop or time.monotonic() - saved[0] >= run.save_every):
                run.store.save(self.calls, fitting.at.step, self.tree(fitting), run.engine)
                saved[0] = time.monotonic()
            if stop:
                raise Interrupted

        return Hooks(row, run.progress.update, pause)

    def agreed(self, stop: bool, fitting: Fitting) -> bool:
        """Whether to stop here: several processes ask one another, once an epoch."""
        engine = self.run.engine
        if engine.world == 1:
            return stop
        return fitting.at.batch == 0 and bool(engine.total(torch.tensor(float(stop))) > 0)

    def tree(self, fitting: Fitting) -> Tree:
        """A checkpoint inside a fit."""
        place = {"name": fitting.settings.name, "first": self.first, "history": self.run.history.mark()}
        return fitting.state() | place

    def resume(self, fitting: Fitting) -> None:
        """Go on from the last checkpoint of this fit, if there is one."""
        store, history = self.run.store, self.run.history
        state = None if store is None else store.latest(self.calls)
        if state is None:
            self.first = len(history.rows)
            history.cut()
            return
        self.same(fitting.settings.name, state)
        fitting.restore(state)
        self.first = state["first"]
        history.rewind(state["history"])

    def finished(self, name: str, problem: Problem) -> Fitted | None:
        """Replay a call that ended in an earlier life of this run."""
        store = self.run.store
        state = None if store is None else store.final(self.calls)
        if state is None:
            return None
        self.same(name, state)
        problem.load_state_dict(state["problem"])
        problem.eval()
        rng.restore(state["rng"])
        self.run.train.restore(state["source"])
        self.calls, self.flops, self.seconds = self.calls + 1, state["flops"], state["seconds"]
        rows = self.run.history.slice(state["first"], state["history"]["rows"])
        if store is not None and not store.started(self.calls):
            self.run.history.rewind(state["history"])
        return Fitted.from_tree(state["fitted"], rows)

    def finish(self, name: str, problem: Problem, fitted: Fitted) -> None:
        """Record the end state."""
        if self.run.store is not None:
            tree = {
                "name": name,
                "problem": problem.state_dict(),
                "rng": rng.capture(),
                "flops": self.flops,
                "seconds": self.seconds,
                "first": self.first,
                "history": self.run.history.mark(),
                "source": self.run.train.state(),
                "fitted": fitted.tree(),
            }
            self.run.store.finish(self.calls, tree, self.run.engine)
        self.calls += 1

    def spend(self, flops: float, seconds: float) -> None:
        """Add to the bill."""
        self.flops += flops
        self.seconds += seconds

    def same(self, name: str, state: Tree) -> None:
        """Refuse a record that another recipe made."""
        if state["name"] != name:
            raise CheckpointError(
                f"fit {self.calls} of this folder is {state['name']!r}, the recipe now asks for {name!r}: "
                "resume with the recipe that made it, or start anew with overwrite=True."
            )


def phase(name: str, problem: Problem) -> Row:
    """What a fit optimises: the lifted places and the number of coordinates."""
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
