"""BestOf on ten tasks nobody tuned for, against tuned AdamW, Muon and SOAP, with and without norms."""

import argparse
import json
import math
import os
import re
import statistics
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.optim import AdamW, Optimizer

import torchlift as tl
from papers.common.arms import Row, difference, machine, spread
from papers.common.cells import Cells
from papers.common.protocol import few
from papers.our_searches.held_out_tasks import TASKS, HeldOut
from torchlift.errors import TorchliftError
from torchlift.experiments.arm import Setup
from torchlift.optim import Muon, Soap
from torchlift.recipes import BestOf
from torchlift.train.optimizers import OptimizerFactory
from torchlift.train.settings import cosine, ramp

Price = Literal["time", "FLOPs"]
SEEDS, TUNING = 3, 100
"""Seeds of the table, and the one rates are chosen on."""
ADAM_RATES = (1e-3, 2e-3, 3e-3, 6e-3, 1e-2, 2e-2)
MUON_RATES = (3e-3, 6e-3, 1e-2, 2e-2, 3e-2, 6e-2)
TRIALS = len(ADAM_RATES)
"""Rates that every rival tries in whole runs; a chooser with free trials spends as much."""

RIVALS: dict[str, tuple[OptimizerFactory, tuple[float, ...], bool]] = {
    "AdamW": (partial(AdamW, weight_decay=0.0), ADAM_RATES, False),
    "Muon": (Muon, MUON_RATES, False),
    "SOAP": (Soap, ADAM_RATES, False),
    "norm + AdamW": (partial(AdamW, weight_decay=0.0), ADAM_RATES, True),
    "norm + Muon": (Muon, MUON_RATES, True),
}
"""Optimizer, rates, and whether the network has norms."""
WITHOUT_NORM = ("AdamW", "Muon", "SOAP")
CANDIDATES: dict[str, tuple[str, float]] = {
    "plain": ("AdamW", 3e-3),
    "rate × 3": ("AdamW", 1e-2),
    "rate / 3": ("AdamW", 1e-3),
    "Muon": ("Muon", 1e-2),
    "Muon, rate × 3": ("Muon", 3e-2),
    "Muon, rate / 3": ("Muon", 3e-3),
    "SOAP": ("SOAP", 3e-3),
    "SOAP, rate × 3": ("SOAP", 1e-2),
    "norm": ("norm + AdamW", 3e-3),
    "norm, rate × 3": ("norm + AdamW", 1e-2),
    "norm, Muon": ("norm + Muon", 1e-2),
}
"""The chooser's candidates that are runs of rivals too: what a trial says can be held against a whole run."""
COLUMNS = (
    "to the best arm",
    "to AdamW",
    "to the best without norms",
    "within noise of it",
    "time to AdamW's",
    "rank correlation",
)
PAID, FREE = "BestOf, trials paid", "BestOf, free trials"


def warm_cosine(t: float) -> float:
    """½(1 + cos πt) · min(1, 20 t)."""
    return cosine(t) * ramp(t, 0.05)


def minus_loss(problem: tl.Problem, batch: Any) -> float:
    """What the last epoch is judged by: the loss that is reported."""
    return -float(problem.task_loss(batch))


def rivals(job: HeldOut) -> list[str]:
    """Those that the task has."""
    return [name for name, (_, _, norm) in RIVALS.items() if job.norms or not norm]


def model(job: HeldOut, norm: bool) -> nn.Module:
    """The network, with norms if it is the one that has them."""
    return job.make(norm=True) if norm else job.make()


class Contest:
    """The cells of one task at one price."""

    def __init__(
        self, name: str, price: Price, out: Path, data: str | None, epochs: float | None = None,
        images: int | None = None,
    ) -> None:  # fmt: skip
        self.name, self.job, self.price = name, TASKS[name], price
        self.splits = few(self.job.data(data), images)
        self.epochs = epochs or self.job.steps / math.ceil(len(self.splits.train[0]) / self.job.batch_size)
        """The budget: epochs of plain AdamW."""
        label = "".join(letter if letter.isalnum() else "-" for letter in name)
        self.cells = Cells(out / "held-out" / f"{label}-{price}-{epochs or 0:g}-{images or 0}.jsonl")

    def seconds(self) -> dict[str, float]:
        """CPU seconds of a step of every rival, measured in turn, the least of each."""

        def measure() -> dict[str, float]:
            batch = tuple(part[: self.job.batch_size] for part in self.splits.train)
            ways: dict[str, tuple[tl.Task, Optimizer]] = {}
            for name in rivals(self.job):
                make, rates, norm = RIVALS[name]
                task = tl.Task(model(self.job, norm), self.job.loss)
                fused = {"fused": True} if name.endswith("AdamW") else {}
                ways[name] = task, make(task.parameters(), lr=1e-3 * rates[0], **fused)
            least = dict.fromkeys(ways, math.inf)
            for _ in range(8):
                for name, (task, optimizer) in ways.items():
                    started = time.process_time()
                    for _ in range(10):
                        tl.step(task, batch, optimizer)
                    least[name] = min(least[name], (time.process_time() - started) / 10)
            return least

        return self.cells.get("seconds of a step", measure)

    def run(self, arm: tl.Arm, seed: int, epochs: float, norm: bool = False) -> Row:
        """One training; what diverges has an infinite loss and a reason."""
        settings: Row = {"loss": self.job.loss, "batch_size": self.job.batch_size, "schedule": warm_cosine}
        settings |= {"keep": "last", "metric": minus_loss, "equal_cost": self.price == "FLOPs"}
        splits = self.splits
        setup = Setup(partial(model, self.job, norm), (splits.train, splits.valid, splits.test), settings)
        started = time.process_time()
        try:
            result = setup.run(arm, seed, epochs=epochs, progress=False)
        except TorchliftError as reason:
            return {"valid": math.inf, "test": math.inf, "reason": str(reason)}
        words = [row["what"][0] for row in result.phases if row["phase"] == "BestOf"]
        return {
            "valid": result.scores["valid"].loss,
            "test": result.scores["test"].loss,
            "seconds": time.process_time() - started,
            "cost": result.cost,
            "epochs": epochs,
            **({"words": words[-1]} if words else {}),
        }

    def rival(self, name: str, rate: float, seed: int) -> Row:
        """One run of a rival for the time, or the FLOPs, of plain AdamW."""
        make, _, norm = RIVALS[name]
        arm = tl.Arm(optimizer=partial(make, lr=rate))

        def run() -> Row:
            seconds = self.seconds() if self.price == "time" else dict.fromkeys(RIVALS, 1.0)
            return self.run(arm, seed, self.epochs * seconds["AdamW"] / seconds[name], norm)

        return self.cells.get(f"{name}, lr {rate:g} | {seed}", run)

    def best_rate(self, name: str) -> float:
        """By the validation loss of the tuning seed."""
        return min(RIVALS[name][1], key=lambda rate: self.rival(name, rate, TUNING)["valid"])

    def chooser(self, name: str, seed: int) -> Row:
        """BestOf, its trials inside the price, or as many full runs' worth of them as a rival has."""
        factor = 1.0 if name == PAID else 1.0 + TRIALS
        recipe = BestOf() if name == PAID else BestOf(trials=TRIALS / (1 + TRIALS), warm=False)
        arm = tl.Arm(recipe, partial(AdamW, lr=3e-3, weight_decay=0.0))
        return self.cells.get(f"{name} | {seed}", lambda: self.run(arm, seed, factor * self.epochs))

    def table(self, seeds: Sequence[int], choosers: Sequence[str]) -> dict[str, list[Row]]:
        """Every rival at its best rate and every chooser, on the table's seeds."""
        rows = {
            name: [self.rival(name, self.best_rate(name), seed) for seed in seeds]
            for name in rivals(self.job)
        }
        return rows | {name: [self.chooser(name, seed) for seed in seeds] for name in choosers}

    def rows(self, seeds: Sequence[int], choosers: Sequence[str]) -> list[Row]:
        """A row per chooser."""
        found = self.table(seeds, choosers)
        return [
            {"price": self.price, "chooser": way}
            | told(self.name, found, way, rank_correlation(self, found[way]))
            for way in choosers
        ]


def ranks(values: Sequence[float]) -> list[int]:
    """How many are smaller, of each."""
    return [sum(other < value for other in values) for value in values]


def rank_correlation(contest: Contest, runs: Sequence[Row]) -> float | None:
    """Spearman's, of the first rung's losses with those of whole runs of the same candidates; their mean."""
    found: list[float] = []
    for run in runs:
        rung = re.search(r"losses of rung 1: (.*?)(;|$)", run.get("words", ""))
        trials = dict(re.findall(r"(.+?) ([0-9.e+-]+)(?:, |$)", rung[1])) if rung else {}
        pairs = [
            (float(loss), contest.rival(*CANDIDATES[name], TUNING)["valid"])
            for name, loss in trials.items()
            if name in CANDIDATES and CANDIDATES[name][0] in rivals(contest.job)
        ]
        if len(pairs) > 2:
            found.append(statistics.correlation(*(ranks(values) for values in zip(*pairs, strict=True))))
    return statistics.fmean(found) if found else None


def told(name: str, found: Mapping[str, list[Row]], chooser: str, correlation: float | None = None) -> Row:
    """A task's row: losses, and the chooser against the best arm, AdamW and the best arm without norms."""
    losses = {way: [row["test"] for row in rows] for way, rows in found.items()}
    means = {way: statistics.fmean(values) for way, values in losses.items()}
    arms = [way for way in found if way in RIVALS]
    best = min(arms, key=lambda way: means[way])
    plain = min((way for way in arms if way in WITHOUT_NORM), key=lambda way: means[way])
    logs = {way: [math.log(value) for value in losses[way]] for way in (chooser, best, "AdamW")}
    gap = difference(logs[chooser], logs[best])
    return {
        "task": name,
        **{way: spread(values) for way, values in losses.items()},
        "best arm": best,
        "to the best arm": math.exp(gap["mean"]),
        "within noise of it": gap["low"] <= 0,
        "to AdamW": means[chooser] / means["AdamW"],
        "to the best without norms": means[chooser] / means[plain],
        "time to AdamW's": total(found[chooser], "seconds") / total(found["AdamW"], "seconds"),
        "rank correlation": correlation,
        "choices": [row.get("words", row.get("reason", "")) for row in found[chooser]],
    }


def total(rows: Sequence[Row], key: str) -> float:
    """The sum of a number over runs; not a number where one is missing."""
    return sum(row.get(key, math.nan) for row in rows)


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
) -> Row:
    """All tasks at equal time, then at equal FLOPs; each task's own steps unless given in epochs."""
    torch.set_num_threads(1)
    numbers = list(range(seeds or SEEDS))
    rows: list[Row] = []
    for price in ("time", "FLOPs"):
        for name in TASKS:
            contest = Contest(name, price, out, data, epochs, images)
            rows += contest.rows(numbers, (PAID, FREE))
    return entry(rows, numbers, epochs)


def entry(rows: list[Row], seeds: Sequence[int], epochs: float | None = None) -> Row:
    """The table with its findings; a table of some of the tasks says so."""
    findings = [finding(rows, price, way) for price in ("time", "FLOPs") for way in (PAID, FREE)]
    tasks = len({row["task"] for row in rows})
    partly = "" if tasks == len(TASKS) else f"partial: {tasks} of {len(TASKS)} tasks; "
    return {
        "title": "BestOf on ten tasks nobody tuned for",
        "source": "our own measurement",
        "finding": " ".join(filter(None, findings)),
        "scale": partly + ("320 to 1,500 steps" if epochs is None else f"{epochs:g} epochs"),
        "seeds": list(seeds),
        "tuning seed": TUNING,
        "machine": machine(),
        "columns": ["price", "chooser", "task", *RIVALS, PAID, FREE, *COLUMNS],
        "rows": rows,
        "notes": [
            f"Test loss at the end of one cosine. Each rival has {TRIALS} rates, chosen on validation data "
            "of a seed outside the table, and the time (CPU, one thread) or FLOPs of plain AdamW's steps.",
            f"{PAID!r}: all its trials are inside that price. {FREE!r}: it has {TRIALS} times the price for "
            "trials, what each rival spends on its rates, then one price for a run from the first weights.",
            "Rank correlation: Spearman's, between losses of the first rung and of whole runs of the same "
            "candidates (on the tuning seed), the mean over seeds.",
            "Within noise: the 95 % interval of the paired logarithm to the best arm reaches 0.",
        ],
    }


def finding(rows: Sequence[Row], price: str, way: str) -> str:
    """A chooser at a price, in a sentence."""
    mine = [row for row in rows if row["price"] == price and row["chooser"] == way]
    if not mine:
        return ""
    near = sum(row["within noise of it"] for row in mine)
    worse = sum(row["to AdamW"] > 1.01 for row in mine)
    median = statistics.median(row["to the best without norms"] for row in mine)
    return (
        f"{way}, equal {price}: within noise of the best arm on {near} of {len(mine)}, worse than tuned "
        f"AdamW by more than 1 % on {worse}, median ratio to the best of AdamW, Muon and SOAP {median:.3f}."
    )


def main() -> None:
    """Some of the cells: ``--stage rivals`` needs no chooser, ``table`` writes what is finished."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/reproduce"))
    parser.add_argument("--data", default=os.environ.get("TORCHLIFT_DATA"))
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), help="parts of names")
    parser.add_argument("--stage", choices=("rivals", "chooser"), default="chooser")
    parser.add_argument("--prices", nargs="*", default=["time"])
    parser.add_argument("--choosers", nargs="*", default=[PAID, FREE])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--result", type=Path, help="write the table of these tasks here")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[Row] = []
    for price in given.prices:
        for name in (task for task in TASKS if any(piece in task for piece in given.tasks)):
            contest = Contest(name, price, given.out, given.data)
            choosers = given.choosers if given.stage == "chooser" else []
            found = contest.table(range(given.seeds), choosers)
            for way, runs in found.items():
                print(name, "|", way, "|", *(f"{row['test']:.4g}" for row in runs), flush=True)
            rows += contest.rows(range(given.seeds), choosers)
    if given.result is not None:
        given.result.write_text(json.dumps(entry(rows, range(given.seeds), 1.0), indent=1) + "\n")


if __name__ == "__main__":
    main()
