"""``auto``: from a model, data and a wish to the model to ship, inside a budget."""

import dataclasses
import functools
import shutil
import tempfile
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from torchlift.core import Lift, Supervised, Task
from torchlift.errors import TorchliftError
from torchlift.experiments.auto_result import AutoResult
from torchlift.experiments.candidates import PLAIN, accepted
from torchlift.experiments.constraints import Delivered, Wish, choose, front
from torchlift.experiments.delivery import SUFFIX, Trial, run_trial
from torchlift.experiments.executors import Executor, Submits, current, opened, processes, run_all
from torchlift.experiments.halving import EXTRA, Point, Rung, plan, promoted, start, suggest
from torchlift.experiments.jobs import Given, Job
from torchlift.experiments.ledger import Ledger
from torchlift.experiments.tune.objective import with_options
from torchlift.loss import split
from torchlift.methods.recipe import Recipe, RecipeLike
from torchlift.train import engine
from torchlift.train.batches import Source, Tensors, source
from torchlift.train.engines import processes as processes_of_run
from torchlift.train.optimizers import ADAMW
from torchlift.train.run.checks import as_task, check
from torchlift.train.run.folder import open_run
from torchlift.train.run.identity import describe, describe_data, describe_model
from torchlift.train.run.labels import folder_name
from torchlift.train.run.lock import claims
from torchlift.train.run.names import named_optimizer, option
from torchlift.train.run.record import Record, run_id
from torchlift.train.run.values import encode

RESERVE = 0.03
"""Of the minutes, kept for the end: choosing, measuring again, writing."""
LEAST = 0.5
"""Epochs: a trial by the clock that would be shorter is left out, and its time is the others'."""
PATIENCE = 2.5
"""How many times its share of the time a trial may take before it is given up."""


@claims()
def auto(
    model: nn.Module,
    train: Any,
    valid: Any,
    *,
    test: Any = None,
    bytes: float | None = None,
    latency: float | None = None,
    accuracy: float | None = None,
    minutes: float | None = None,
    budget: float | None = None,
    candidates: Mapping[str, str | RecipeLike | Lift | None] | None = None,
    executor: Executor = None,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    **settings: Any,
) -> AutoResult:
    """Search recipes and chains for the model to ship, and say why it is the one.

    Every trial ends in a delivered model: trained, shrunk, packed, read back, measured. Trials get longer
    from rung to rung (successive halving; points drawn by Optuna), plain training is in every rung. A
    candidate that the model does not accept, or that fails, is dropped with its reason.

    Args:
        model: the model, or a :class:`Task` with its loss; it is left alone, all trials start from its
            weights.
        train: as for :func:`torchlift.fit`.
        valid: what promotes, and what the choice goes by.
        test: scored for every model that is delivered; nothing goes by it.
        bytes: the largest packed file wanted.
        latency: the most milliseconds of a call on one sample wanted, on this machine.
        accuracy: the least validation metric wanted; the smallest file that reaches it is taken. Without
            it the best metric is, and of those within half a standard error the smallest file.
        minutes: the time the whole search may take (10, where no ``budget`` is given).
        budget: or the FLOPs of all trials together, in epochs of plain training.
        candidates: names to recipes; without them :func:`~torchlift.experiments.candidates.portfolio`.
        executor: where the trials of a rung go, see :mod:`torchlift.experiments.executors`.
        seed: of everything random.
        out: a folder: ``model.tlift``, ``auto.json``, every trial's run. With it the search is durable.
        resume: go on with what is in ``out``.
        overwrite: start anew in ``out``.
        settings: further settings of :func:`torchlift.fit` (``schedule="cosine"``, ``keep="best"`` unless
            given).
    """
    if processes_of_run() > 1:
        raise TorchliftError("auto shares its trials by executor=: start it without torchrun.")
    if minutes is not None and budget is not None:
        raise TorchliftError("give one budget: minutes= of time, or budget= of plain epochs by FLOPs.")
    if budget is None:
        minutes = 10.0 if minutes is None else minutes
    if not (minutes or budget or 0) > 0:
        raise TorchliftError(f"the budget is above 0, got {minutes if budget is None else budget!r}.")
    started = time.time()
    optimizer = named_optimizer(settings.get("optimizer", ADAMW))
    chosen: dict[str, Any] = (
        {"schedule": "cosine", "keep": "best"} | settings | {"optimizer": optimizer, "progress": False}
    )
    task = as_task(model, chosen.pop("loss", "cross_entropy"))
    batch = int(chosen.get("batch_size", 128))
    data = source(train, batch)
    check(task, data, engine().device)
    higher, rate = direction(task, chosen)
    wish = Wish(bytes, latency, accuracy, higher, rate)
    kept, dropped = accepted(candidates, task, wish, data, batch, seed)
    folder = Path(out) if out is not None else Path(tempfile.mkdtemp(prefix="torchlift-auto-"))
    names: Record = {"folders": [], "wish": str(wish), "budget": budget or 0.0, "minutes": minutes or 0.0}
    names["seed"] = seed
    record = functools.partial(describe_auto, task, (train, valid), kept, chosen, batch, names)
    try:
        open_run(folder, "auto", record, resume=resume, overwrite=overwrite)
        job = Job(Given(task), (train, valid, test), None, seed, None, chosen)
        with opened(current(executor)) as pool:
            workers = processes(executor) if isinstance(executor, str | int) else 1
            ledger = Ledger(folder / "ledger.jsonl", run_id(folder))
            search = Search(job, kept, wish, folder, ledger, pool, workers, started, budget, minutes)
            search.run()
        held = source(train if valid is None else valid, batch, shuffle=False)
        found = search.finish(dropped, predictions(held, batch) if rate else 0, rate)
    except BaseException:
        if out is None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    if out is None:  # the files live as long as what names them
        weakref.finalize(found, shutil.rmtree, folder, ignore_errors=True)
    return found


def direction(task: Task, settings: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether a higher metric is better, and whether it is a share of the samples."""
    if settings.get("metric") is not None:
        return True, False
    loss = task.loss
    return (
        (loss.higher_is_better, loss.metric == "accuracy") if isinstance(loss, Supervised) else (False, False)
    )


def predictions(data: Source, batch: int) -> int:
    """How many labels an accuracy is the share of: one per sample, or per position of a sequence."""
    return split(data.tree)[1].numel() if isinstance(data, Tensors) else data.steps() * batch


def describe_auto(
    task: Task,
    data: tuple[Any, Any],
    kept: Mapping[str, Recipe],
    settings: Mapping[str, Any],
    batch: int,
    names: Record,
) -> Record:
    """What identifies a search: a folder made with anything else is not resumed."""
    parts = zip(("train", "valid"), data, strict=True)
    return names | {
        "model": describe_model(task.model),
        "data": {name: describe_data(None if part is None else source(part, batch)) for name, part in parts},
        "loss": describe(task.loss),
        "candidates": {name: describe(recipe) for name, recipe in kept.items()},
        "settings": encode({k: v for k, v in sorted(settings.items()) if k != "progress"}),
    }


@dataclasses.dataclass
class Search:
    """The rungs, one after the other; what is in the ledger is not run again."""

    job: Job
    candidates: Mapping[str, Recipe]
    wish: Wish
    folder: Path
    ledger: Ledger
    pool: Submits | None
    workers: int
    started: float
    budget: float | None
    """Plain epochs; without it, minutes."""
    minutes: float | None

    def __post_init__(self) -> None:
        self.before = self.ledger.spent()
        """Seconds that earlier lives of this search took."""

    @property
    def seconds(self) -> float:
        """What time the search has, and 0 without a limit."""
        return 60 * (self.minutes or 0.0)

    def elapsed(self) -> float:
        """Seconds so far, earlier lives included."""
        return self.before + time.time() - self.started

    def left(self) -> float:
        """Seconds of trials that may still be started, all workers together."""
        return self.workers * ((1 - RESERVE) * self.seconds - self.elapsed())

    def run(self) -> None:
        """All rungs."""
        rungs = self.rungs()
        last = self.first(rungs)
        for level in range(1, len(rungs)):
            chosen = promoted(last, rungs[level].runs, self.wish, PLAIN)
            points = [Point(row.name, row.rate) for row in chosen]
            last = self.tried(points, level, rungs, points)

    def rungs(self) -> list[Rung]:
        """The plan, made once and written down."""
        known = self.ledger.of("plan")
        if not known:
            points = len(self.candidates) + EXTRA
            if self.budget is not None:
                rungs = plan(self.budget, points)
            else:
                self.tried([Point(PLAIN, 1.0)], -2, [Rung(1, 0.1)], [])  # what is imported once is no speed
                row = self.tried([Point(PLAIN, 1.0)], -1, [Rung(1, 1.0)], [])[0]
                if row.reason:
                    raise TorchliftError(f"plain training fails, so nothing can be searched: {row.reason}")
                speed = row.fit_seconds / max(row.cost, 1e-9)
                overhead = (row.seconds - row.fit_seconds) / speed
                rungs = plan(self.left() / speed, points, overhead=overhead, refuse=False)
            self.ledger.append("plan", {"rungs": [dataclasses.asdict(rung) for rung in rungs]})
            known = self.ledger.of("plan")
        return [Rung(**rung) for rung in known[0]["rungs"]]

    def first(self, rungs: list[Rung]) -> list[Delivered]:
        """The first rung: every candidate, then what Optuna suggests, as far as the plan goes."""
        names, count = list(self.candidates), rungs[0].runs
        points = start(names)[:count]
        rows = self.tried(points, 0, rungs, [Point("", 0.0)] * count)
        while len(points) < count:
            point = suggest(names, rows, points, self.wish, self.job.seed)
            points.append(point)
            rows += self.tried([point], 0, rungs, [Point("", 0.0)] * (count - len(points) + 1))
        return rows

    def tried(self, points: list[Point], level: int, rungs: list[Rung], rest: list[Point]) -> list[Delivered]:
        """The rows of these points, from the ledger or from runs; ``rest``: all that this rung has left."""
        done = {(row.name, row.rate, row.rung): row for row in self.ledger.rows}
        new = [point for point in points if (point.name, point.rate, level) not in done]
        batches = [[point] for point in new] if self.pool is None else [new]
        left = max(len(rest), len(points)) - (len(points) - len(new))
        for batch in batches:
            if not batch:
                continue
            trials = [self.trial(point, level, rungs, left) for point in batch]
            short = [t for t in trials if t.row.epochs < LEAST and t.row.name != PLAIN and level >= 0]
            rows = [dataclasses.replace(trial.row, reason="no time was left for it.") for trial in short]
            for row in [*rows, *run_all(run_trial, [t for t in trials if t not in short], self.pool)]:
                self.ledger.add(row)
                done[row.name, row.rate, row.rung] = row
            left -= len(batch)
        return [done[point.name, point.rate, level] for point in points]

    def trial(self, point: Point, level: int, rungs: list[Rung], left: int) -> Trial:
        """A run of a rung: its budget as planned, or as the time that is left allows."""
        epochs, deadline = rungs[max(level, 0)].epochs, None
        if self.budget is None and level >= 0:
            share, overhead, speed = self.share(point, level, rungs, left)
            epochs = max(0.1, (share - overhead) / speed)
            hard = self.started - self.before + self.seconds
            deadline = min(time.time() + PATIENCE * share, hard)
        key = f"{point.key}, rung {level + 1}"
        said = describe(self.candidates[point.name])
        row = Delivered(key, point.name, said, level, point.rate, epochs, 0.0, 0.0)
        optimizer = self.job.settings["optimizer"]
        given = option(optimizer, "lr")
        if given is not None:
            optimizer = with_options(optimizer, {"lr": given * point.rate})
        place = self.folder / "runs" / folder_name(key)
        settings = {**self.job.settings, "optimizer": optimizer, "epochs": epochs, "resume": True}
        job = dataclasses.replace(self.job, recipe=self.candidates[point.name], out=place, settings=settings)
        return Trial(row, job, self.folder / "models" / f"{folder_name(key)}{SUFFIX}", deadline)

    def share(self, point: Point, level: int, rungs: list[Rung], left: int) -> tuple[float, float, float]:
        """Seconds for a run, of which so many beside its epochs, and seconds for each plain epoch's cost."""
        rows = [row for row in self.ledger.rows if not row.reason and row.cost > 0]
        own = [row for row in rows if row.name == point.name]
        last = (own or [row for row in rows if row.name == PLAIN] or rows)[-1]
        speed, overhead = last.fit_seconds / last.cost, last.seconds - last.fit_seconds
        later = sum(rung.runs * (rung.epochs * speed + overhead) for rung in rungs[level + 1 :])
        here = rungs[level].epochs * speed + overhead
        return max(self.left(), 0.0) * here / (left * here + later), overhead, speed

    def finish(self, dropped: dict[str, str], samples: int, rate: bool) -> AutoResult:
        """The front, the choice, and its file."""
        done = [row for row in self.ledger.rows if not row.reason]
        rows = [row for row in done if row.rung >= 0] or done
        tried = {row.name for row in rows}
        for row in self.ledger.rows:
            if row.name not in tried:
                dropped[row.name] = row.reason
        for name in self.candidates:
            if name not in tried:
                dropped.setdefault(name, "the budget paid for no trial of it.")
        if not rows:
            raise TorchliftError(f"no trial came to its end: {next(iter(dropped.values()), 'no time')}")
        chosen, why = choose(rows, self.wish, samples, rate)
        timed = self.budget is None
        return AutoResult(
            front=front(rows, self.wish),
            chosen=chosen,
            rows=self.ledger.rows,
            dropped=dropped,
            wish=self.wish,
            why=why,
            spent=self.elapsed() / 60 if timed else sum(row.cost for row in self.ledger.rows),
            budget=float((self.minutes if timed else self.budget) or 0.0),
            unit="minutes" if timed else "plain epochs",
            folder=self.folder,
            job=self.job,
        ).saved()
