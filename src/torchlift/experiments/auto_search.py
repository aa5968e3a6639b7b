"""The search behind ``auto``: rungs of trials, a winner, and the rest of the budget for the winner."""

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path

from torchlift.errors import BudgetError, TorchliftError
from torchlift.experiments.arm import Arm, Setup, run_job
from torchlift.experiments.auto_result import AutoResult
from torchlift.experiments.candidates import PLAIN
from torchlift.experiments.constraints import (
    Constraints,
    Delivered,
    choose,
    front,
    next_rung_order,
    superseding,
)
from torchlift.experiments.delivery import SUFFIX, Delivery, same_shapes
from torchlift.experiments.executors import Submits, run_all
from torchlift.experiments.halving import (
    EXTRA,
    LAST,
    SHORTEST_TRIAL,
    RatePoint,
    Rung,
    plan_rungs,
    promoted,
    starting_order,
    suggest,
)
from torchlift.experiments.ledger import Ledger
from torchlift.experiments.onward import Onward, rest_of
from torchlift.train.checkpoint import load_checkpoint
from torchlift.train.run.identity import describe_setting
from torchlift.train.run.labels import folder_name

RESERVE = 0.03
"""Of the minutes, kept for the end: choosing, measuring again, writing."""
SEARCH, SIZED, FEW = 0.5, 0.25, 5
"""Of the budget, for all trials together; the rest trains the winner. Under a limit on the file few of the
candidates are left, and short runs mislead: a quarter is for so many trials, of an epoch at least."""
SHORTEST = LAST / SEARCH
"""Plain epochs: a search of two trials of one epoch each."""
LEAST = 0.5
"""Plain epochs: a run by the clock that would be shorter is left out."""
PATIENCE = 2.5
"""How many times its share of the time a trial may take before it is given up."""
CAUTION = 0.8
"""Of the time left, planned for the winner's training: one that does not end in time is lost."""
SEARCH_TIME = 1 - RESERVE - (1 - SEARCH) / CAUTION
"""Of the minutes, for all trials together: half of all is planned for the winner, and room to be late. Under
a limit on the file it is half of that."""
WARM, SPEED = -2, -1
"""Rungs that are none: two short runs that tell the speed."""


@dataclasses.dataclass
class AutoSearch:
    """The rungs, one after the other, then the winner; what is in the ledger is not run again."""

    setup: Setup
    arms: Mapping[str, Arm]
    constraints: Constraints
    seed: int
    samples: int
    """How many the metric is a share of; 0 where it is none."""
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

    @property
    def trial_epochs(self) -> float:
        """Of the budget in plain epochs, what all trials have together."""
        assert self.budget is not None
        sized = self.constraints.bytes is not None
        return min(SEARCH * self.budget, max(SIZED * self.budget, FEW)) if sized else SEARCH * self.budget

    @property
    def trial_time(self) -> float:
        """Of the minutes, the part that all trials have together."""
        return SEARCH_TIME if self.constraints.bytes is None else SEARCH_TIME * SIZED / SEARCH

    @property
    def shortest(self) -> float:
        """The least part of what all trials have that one has: shorter ones say little of a whole run."""
        return SHORTEST_TRIAL if self.constraints.bytes is None else 1 / FEW

    def elapsed(self) -> float:
        """Seconds so far, earlier lives included."""
        return self.before + time.time() - self.started

    def left(self) -> float:
        """Seconds that may still be used."""
        return (1 - RESERVE) * self.seconds - self.elapsed()

    def run(self) -> None:
        """All rungs, then the winner."""
        rungs = self.rungs()
        last = self.first(rungs)
        for level in range(1, len(rungs)):
            chosen = promoted(last, rungs[level].runs, self.constraints, PLAIN)
            points = [(row.name, row.rate) for row in chosen]
            last = self.tried(points, level, rungs, len(points))
        good = [row for row in last if not row.reason]
        if good:
            self.train(choose(good, self.constraints, self.samples)[0])

    def rungs(self) -> list[Rung]:
        """The plan, made once and written down."""
        if self.budget is not None and self.budget < SHORTEST:
            raise BudgetError(
                f"auto needs a budget of {SHORTEST:g} plain epochs at least, got {self.budget:g}."
            )
        if not self.ledger.of("plan"):
            points = len(self.arms) + EXTRA
            if self.budget is not None:
                rungs = plan_rungs(self.trial_epochs, points, self.shortest)
            else:
                self.measured_plain(WARM, 0.1)  # the first run pays for imports
                row = self.measured_plain(SPEED, 1.0)
                speed, overhead = pace(row)
                time_left = self.trial_time * self.workers * self.left() / speed
                rungs = plan_rungs(time_left, points, self.shortest, overhead=overhead / speed)
            self.ledger.append("plan", {"rungs": [dataclasses.asdict(rung) for rung in rungs]})
        return [Rung(**rung) for rung in self.ledger.of("plan")[0]["rungs"]]

    def measured_plain(self, level: int, epochs: float) -> Delivered:
        """A short run of plain training, for its speed."""
        row = self.tried([(PLAIN, 1.0)], level, [Rung(1, epochs)], 1)[0]
        if row.reason:
            raise TorchliftError(f"plain training fails, so nothing can be searched: {row.reason}")
        return row

    def first(self, rungs: list[Rung]) -> list[Delivered]:
        """The first rung: every candidate, then what Optuna suggests, as far as the plan goes."""
        names, count = list(self.arms), rungs[0].runs
        points = starting_order(names)[:count]
        rows = self.tried(points, 0, rungs, count)
        while len(points) < count:
            point = suggest(names, rows, points, self.constraints, self.seed)
            points.append(point)
            rows += self.tried([point], 0, rungs, count - len(points) + 1)
        return rows

    def tried(self, points: list[RatePoint], level: int, rungs: list[Rung], rest: int) -> list[Delivered]:
        """The rows of these points, from the ledger or from runs; ``rest``: all that this rung has left."""
        done = {(row.name, row.rate): row for row in self.ledger.rows if row.rung == level}
        new = [point for point in points if point not in done]
        batches = [[point] for point in new] if self.pool is None else [new]
        left = rest - (len(points) - len(new))
        for batch in batches:
            trials = [self.trial(point, level, rungs, left) for point in batch]
            for row in self.delivered(trials):
                done[row.name, row.rate] = row
            left -= len(batch)
        return [done[point] for point in points]

    def delivered(self, trials: list[Delivery]) -> list[Delivered]:
        """The rows of runs, written down; one that would be too short is left out, if it is not plain."""
        short = [t.row for t in trials if t.row.epochs < LEAST and t.row.name != PLAIN]
        rows = [dataclasses.replace(row, reason="no time was left for it.") for row in short]
        rows += run_all(run_job, [trial for trial in trials if trial.row not in short], self.pool)
        for row in rows:
            self.ledger.add(row)
        return rows

    def trial(self, point: RatePoint, level: int, rungs: list[Rung], left: int) -> Delivery:
        """A run of a rung: its budget as planned, or as the time that is left allows."""
        epochs, deadline = rungs[max(level, 0)].epochs, None
        if self.budget is None and level >= 0:
            share, overhead, speed = self.share(point[0], level, rungs, left)
            epochs = max(0.1, (share - overhead) / speed)
            deadline = min(time.time() + PATIENCE * share, self.end())
        return self.delivery(point, level, epochs, deadline, f"rung {level + 1}")

    def train(self, winner: Delivered) -> None:
        """What is left of the budget for the winner, from its trial on; should that fail, from the start."""
        for words in ("trained on", "from the start"):
            done = [row for row in self.ledger.rows if row.final and row.key.endswith(words)]
            rows = done or self.last_run(winner, words)
            if not rows or not rows[0].reason:
                return

    def last_run(self, winner: Delivered, words: str) -> list[Delivered]:
        """The row of the winner's longest run; none where too little is left for one."""
        failed = any(row.final for row in self.ledger.rows)
        if self.budget is not None:  # of a run that fails, the last epoch is not in the account
            epochs, deadline = self.budget - sum(row.cost for row in self.ledger.rows) - failed, None
        else:
            speed, overhead = pace(winner)
            epochs, deadline = (CAUTION * self.left() - overhead) / speed, self.end()
        if epochs < LEAST:
            return []
        trial = self.delivery((winner.name, winner.rate), winner.rung + 1, epochs, deadline, words)
        trial = dataclasses.replace(trial, row=dataclasses.replace(trial.row, final=True))
        return self.delivered([trial if failed else self.onward(trial, winner)])

    def onward(self, trial: Delivery, winner: Delivered) -> Delivery:
        """A run from where the winner's trial ended: from its weights, or from the model it has cut."""
        weights = self.folder / "runs" / folder_name(winner.key) / "model.safetensors"
        if same_shapes(load_checkpoint(weights), self.setup.make_model()):
            return dataclasses.replace(trial, start=weights)
        rest = rest_of(trial.arm.recipe)
        if rest is None or winner.packed.startswith("tensors"):
            return trial
        recipe = Onward(self.folder / "models" / winner.file, rest)
        return dataclasses.replace(trial, arm=dataclasses.replace(trial.arm, recipe=recipe))

    def delivery(
        self, point: RatePoint, level: int, epochs: float, deadline: float | None, words: str
    ) -> Delivery:
        """A run of a point."""
        name, rate = point
        arm = self.arms[name]
        key = f"{name}, rate ×{rate:.3g}, {words}"
        row = Delivered(key, name, describe_setting(arm.recipe), level, rate, epochs, 0.0, 0.0)
        return Delivery(
            row=row,
            setup=self.setup,
            arm=dataclasses.replace(arm, rate=arm.rate * rate),
            seed=self.seed,
            out=self.folder / "runs" / folder_name(key),
            file=self.folder / "models" / f"{folder_name(key)}{SUFFIX}",
            deadline=deadline,
            incumbent=self.incumbent(),
        )

    def incumbent(self) -> tuple[Path, float] | None:
        """Where latency is a constraint: the file of the best model so far, and its milliseconds."""
        rows = [row for row in self.ledger.rows if not row.reason and not row.packed.startswith("tensors")]
        if self.constraints.latency is None or not rows:
            return None
        best = next_rung_order(rows, self.constraints)[0]
        return self.folder / "models" / best.file, best.latency_ms

    def end(self) -> float:
        """When the time is over, in seconds since 1970."""
        return self.started - self.before + self.seconds

    def share(self, name: str, level: int, rungs: list[Rung], left: int) -> tuple[float, float, float]:
        """Seconds for a run, of which so many beside its epochs, and seconds for each plain epoch's cost."""
        rows = [row for row in self.ledger.rows if not row.reason and row.cost > 0]
        own = [row for row in rows if row.name == name]
        speed, overhead = pace((own or [row for row in rows if row.name == PLAIN] or rows)[-1])
        later = sum(rung.runs * (rung.epochs * speed + overhead) for rung in rungs[level + 1 :])
        here = rungs[level].epochs * speed + overhead
        search = self.workers * max(self.left() - (1 - RESERVE - self.trial_time) * self.seconds, 0.0)
        return search * here / (left * here + later), overhead, speed

    def finish(self, dropped: dict[str, str]) -> AutoResult:
        """The front, the choice, and its file."""
        done = [row for row in self.ledger.rows if not row.reason]
        rows = [row for row in done if row.rung >= 0] or done
        tried = {row.name for row in rows}
        dropped |= {row.name: row.reason for row in self.ledger.rows if row.name not in tried}
        untried = [name for name in self.arms if name not in tried]
        dropped = dict.fromkeys(untried, "the budget paid for no trial of it.") | dropped
        if not rows:
            raise TorchliftError(f"no trial came to its end: {next(iter(dropped.values()), 'no time')}")
        rows = superseding(rows, self.constraints, self.samples)
        chosen, why = choose(rows, self.constraints, self.samples)
        timed = self.budget is None
        return AutoResult(
            front=front(rows, self.constraints),
            chosen=chosen,
            rows=self.ledger.rows,
            dropped=dropped,
            constraints=self.constraints,
            why=why,
            spent=self.elapsed() / 60 if timed else sum(row.cost for row in self.ledger.rows),
            budget=float((self.minutes if timed else self.budget) or 0.0),
            unit="minutes" if timed else "plain epochs",
            folder=self.folder,
            setup=self.setup,
            seed=self.seed,
        ).saved()


def pace(row: Delivered) -> tuple[float, float]:
    """Seconds for each plain epoch's cost, and seconds beside the training."""
    return max(row.fit_seconds, 1e-9) / max(row.cost, 1e-9), row.seconds - row.fit_seconds
