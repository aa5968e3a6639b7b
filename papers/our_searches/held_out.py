"""BestOf on ten tasks nobody tuned for, against tuned AdamW, Muon and SOAP, with and without norms."""

import argparse
import json
import math
import os
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch.optim import AdamW

import torchlift as tl
from papers.common.arms import Row, difference, machine, spread
from papers.common.protocol import few, share_of, thinned
from papers.common.rivals import minus_loss
from papers.our_searches.held_out_tasks import TASKS, HeldOut
from torchlift.experiments.arm import Setup
from torchlift.experiments.comparison import PLAIN
from torchlift.experiments.executors import run_all
from torchlift.files import write_file
from torchlift.optim import Muon, Soap
from torchlift.recipes import BestOf
from torchlift.train.optimizers import OptimizerFactory
from torchlift.train.run.result import Result
from torchlift.train.settings import cosine, ramp

Price = Literal["time", "FLOPs"]
SEEDS, TUNING = 3, 100
"""Seeds of the table, and the one rates are chosen on."""
ADAM_RATES = (1e-3, 2e-3, 3e-3, 6e-3, 1e-2, 2e-2)
MUON_RATES = (3e-3, 6e-3, 1e-2, 2e-2, 3e-2, 6e-2)
TRIALS = len(ADAM_RATES)
"""Rates that every rival tries in whole runs; a chooser with free trials spends as much."""

PLAIN_ADAMW = partial(AdamW, lr=3e-3, weight_decay=0.0)
RIVALS: dict[str, tuple[OptimizerFactory, tuple[float, ...], bool]] = {
    "AdamW": (partial(AdamW, weight_decay=0.0), ADAM_RATES, False),
    "Muon": (Muon, MUON_RATES, False),
    "SOAP": (Soap, ADAM_RATES, False),
    "norm + AdamW": (partial(AdamW, weight_decay=0.0), ADAM_RATES, True),
    "norm + Muon": (Muon, MUON_RATES, True),
}
"""Optimizer, rates, and whether the network has norms."""
WITHOUT_NORM = ("AdamW", "Muon", "SOAP")
CANDIDATES: dict[str, str] = {
    "plain": "AdamW, lr 0.003",
    "rate × 3": "AdamW, lr 0.01",
    "rate / 3": "AdamW, lr 0.001",
    "Muon": "Muon, lr 0.01",
    "Muon, rate × 3": "Muon, lr 0.03",
    "Muon, rate / 3": "Muon, lr 0.003",
    "SOAP": "SOAP, lr 0.01",
    "SOAP, rate / 3": "SOAP, lr 0.003",
    "norm": "norm + AdamW, lr 0.003",
    "norm, rate × 3": "norm + AdamW, lr 0.01",
    "norm, Muon": "norm + Muon, lr 0.01",
}
"""The chooser's candidates that are runs of rivals too: what a trial says can be held against a whole run."""
COLUMNS = (
    "to the best arm",
    "to AdamW",
    "to the best without norms",
    "within noise of it",
    "CPU time to AdamW's",
    "rank correlation",
)
LEAST = 64
"""A budget pays for so many steps at least: one of a rival costs many of AdamW's."""
PAID, FREE = "BestOf, trials paid", "BestOf, free trials"


def warm_cosine(t: float) -> float:
    """½(1 + cos πt) · min(1, 20 t)."""
    return cosine(t) * ramp(t, 0.05)


def rivals(job: HeldOut, share: float = 1.0) -> dict[str, dict[str, tl.Arm]]:
    """Those that the task has, at all their rates or a share of them; compare's plain is AdamW."""
    with_norms = partial(job.make, norm=True)
    return {
        PLAIN if name == "AdamW" else name: {
            f"{name}, lr {lr:g}": tl.Arm(optimizer=partial(make, lr=lr), model=with_norms if norm else None)
            for lr in thinned(rates, share)
        }
        for name, (make, rates, norm) in RIVALS.items()
        if job.norms or not norm
    }


class Contest:
    """One task at one price."""

    def __init__(
        self, name: str, price: Price, out: Path, data: str | None, epochs: float | None = None,
        images: int | None = None,
    ) -> None:  # fmt: skip
        self.name, self.job, self.price = name, TASKS[name], price
        whole = self.job.data(data)
        self.splits = few(whole, images)
        steps, all_steps = (
            math.ceil(len(splits.train[0]) / self.job.batch_size) for splits in (self.splits, whole)
        )
        self.epochs = max(epochs or self.job.steps / steps, LEAST / steps)
        """The budget: epochs of plain AdamW."""
        own = self.job.steps / all_steps
        self.share = share_of(epochs or own, own, len(self.splits.train[0]), len(whole.train[0]))
        """Of every rival's rates: less than all where little of the training is wanted."""
        label = "".join(letter if letter.isalnum() else "-" for letter in name)
        self.folder = out / "held-out" / f"{label}-{price}-{epochs or 0:g}-{images or 0}"
        self.settings: Row = {"loss": self.job.loss, "batch_size": self.job.batch_size, "keep": "last"}
        self.settings |= {"schedule": warm_cosine, "metric": minus_loss, "progress": False}

    def compared(self, seeds: Sequence[int]) -> tl.Comparison:
        """Every rival at its best rate on the tuning seed, for the time or the FLOPs of plain AdamW."""
        return tl.compare(
            self.job.make, self.splits, recipes=rivals(self.job, self.share), seeds=seeds,
            tuning_seeds=(TUNING,), budget=self.epochs, time="1x" if self.price == "time" else None,
            out=self.folder / "rivals", resume=True, **self.settings,
        )  # fmt: skip

    def chosen(self, name: str, seeds: Sequence[int]) -> list[Result]:
        """BestOf, its trials inside the price, or as many full runs' worth of them as a rival has."""
        trials = math.ceil(self.share * TRIALS)
        recipe = BestOf() if name == PAID else BestOf(trials=trials / (1 + trials), warm=False)
        epochs = self.epochs * (1 if name == PAID else 1 + trials)
        own: Row = {"epochs": epochs, "equal_cost": self.price == "FLOPs", "resume": True}
        setup = Setup(self.job.make, self.splits, self.settings | own)
        arm = tl.Arm(recipe, PLAIN_ADAMW)

        def run(seed: int) -> Result:
            return self.timed(f"{name}-{seed}", lambda: setup.run(arm, seed, self.folder / f"{name}-{seed}"))

        return run_all(run, seeds)

    def timed(self, name: str, run: Callable[[], Result]) -> Result:
        """A run whose CPU seconds are kept beside it; a call that only reads it again does not count."""
        file, started = self.folder / f"{name}.seconds", time.process_time()
        result = run()
        if not file.exists():
            write_file(file, str(time.process_time() - started).encode())
        return result

    def seconds(self, names: Sequence[str]) -> float:
        """The mean over runs."""
        return statistics.fmean(float((self.folder / f"{name}.seconds").read_text()) for name in names)

    def price_of_choosing(self, name: str, seeds: Sequence[int]) -> float:
        """CPU time of a chooser's runs, all its trials counted, to that of a run of plain AdamW."""
        if not (self.folder / "AdamW.seconds").exists():
            setup = Setup(self.job.make, self.splits, self.settings | {"epochs": self.epochs})
            _ = self.timed("AdamW", lambda: setup.run(tl.Arm(None, PLAIN_ADAMW), TUNING))
        return self.seconds([f"{name}-{seed}" for seed in seeds]) / self.seconds(["AdamW"])

    def rows(self, seeds: Sequence[int], choosers: Sequence[str]) -> list[Row]:
        """A row per chooser."""
        compared = self.compared(seeds)
        tuned = {name: loss for one in compared.tuning.values() for name, loss in one.candidates.items()}
        runs = {"AdamW" if label == PLAIN else label: runs for label, runs in compared.results.items()}
        runs |= {name: self.chosen(name, seeds) for name in choosers}
        results = {name: [brief(run) for run in some] for name, some in runs.items()}
        return [
            {"price": self.price, "chooser": way}
            | task_row(self.name, results, way, rank_correlation(tuned, results[way]))
            | {"CPU time to AdamW's": self.price_of_choosing(way, seeds)}
            for way in choosers
        ]


def brief(run: Result) -> Row:
    """What the table needs of a run."""
    words = [row["what"][0] for row in run.phases if row["phase"] == "BestOf"]
    return {"test": run.scores["test"].loss, "words": words[-1] if words else ""}


def ranks(values: Sequence[float]) -> list[int]:
    """How many are smaller, of each."""
    return [sum(other < value for other in values) for value in values]


def rank_correlation(losses: Mapping[str, float], runs: Sequence[Row]) -> float | None:
    """Spearman's, of the first rung's losses with those of whole runs of the same candidates; their mean."""
    correlations: list[float] = []
    for run in runs:
        rung = re.search(r"losses of rung 1: (.*?)(;|$)", run["words"])
        trials = dict(re.findall(r"(.+?) ([0-9.e+-]+)(?:, |$)", rung[1])) if rung else {}
        pairs = [
            (float(loss), -losses[CANDIDATES[name]])
            for name, loss in trials.items()
            if CANDIDATES.get(name) in losses
        ]
        if len(pairs) > 2:
            correlations.append(
                statistics.correlation(*(ranks(values) for values in zip(*pairs, strict=True)))
            )
    return statistics.fmean(correlations) if correlations else None


def task_row(
    name: str, results: Mapping[str, list[Row]], chooser: str, correlation: float | None = None
) -> Row:
    """A task's row: losses, and the chooser against the best arm, AdamW and the best arm without norms."""
    losses = {way: [row["test"] for row in rows] for way, rows in results.items()}
    means = {way: statistics.fmean(values) for way, values in losses.items()}
    arms = [way for way in results if way in RIVALS]
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
        "rank correlation": correlation,
        "choices": [row["words"] for row in results[chooser]],
    }


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
            "trials, what each rival spends on its rates, and one more; what it delivers is a whole run "
            "from the first weights, the best of three by validation loss. It chooses on every seed anew.",
            "CPU time: that of the chooser's whole call, trials and overhead, to a run of AdamW.",
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
    """The table of some of the tasks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/reproduce"))
    parser.add_argument("--data", default=os.environ.get("TORCHLIFT_DATA"))
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), help="parts of names")
    parser.add_argument("--prices", nargs="*", default=["time"])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--result", type=Path, required=True, help="write the table here")
    options = parser.parse_args()
    torch.set_num_threads(1)
    numbers = range(options.seeds)
    tasks = [task for task in TASKS if any(piece in task for piece in options.tasks)]
    contests = [Contest(task, price, options.out, options.data) for price in options.prices for task in tasks]
    rows = [row for contest in contests for row in contest.rows(numbers, (PAID, FREE))]
    some = "".join(f' "{task}"' for task in options.tasks) if tasks != list(TASKS) else ""
    command = (
        f"OMP_NUM_THREADS=1 python papers/our_searches/held_out.py --prices {' '.join(options.prices)} "
        f"{f'--tasks{some} ' if some else ''}--seeds {options.seeds} --result held-out.json"
    )
    left_out = [f"without equal {price}" for price in ("time", "FLOPs") if price not in options.prices]
    partial = {"partial": ", ".join(left_out)} if left_out else {}
    record = entry(rows, numbers) | {"command": command} | partial
    options.result.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
