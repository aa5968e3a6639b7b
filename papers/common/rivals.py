"""Lifts held against tuned rivals at two prices: equal FLOPs, and equal time of one core.

A contest is :func:`torchlift.compare` at each price with three labels, each with its candidates: plain AdamW,
the rivals (optimizers, or averaging alone), and ours. Rivals get at least as many trials as lifts, on seeds
outside the table; the best of each meet on the table's seeds. Here are the grids of arms, and the table.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import torchlift as tl
from papers.common.arms import Row, difference, machine, spread
from papers.common.protocol import thinned
from torchlift.data import Splits

PRICES = {"time": "1x", "FLOPs": None}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": partial(torch.optim.SGD, momentum=0.9),
    "AdamW": partial(torch.optim.AdamW, weight_decay=0.0),
    "Muon": tl.optim.Muon,
    "SOAP": tl.optim.Soap,
}
RIVAL, LIFT, PLAIN = "rival", "lift", "plain"

Arms = Mapping[str, tl.Arm]
"""By their names: the kind, then the settings."""


def minus_loss(problem: tl.Problem, batch: Any) -> float:
    """What runs are judged by: the loss that is reported."""
    return -float(problem.task_loss(batch))


def kind(name: str) -> str:
    """An arm's name without rates and options."""
    return name.partition(", lr ")[0]


@dataclasses.dataclass(frozen=True)
class Contest:
    """A model, its data and its budget; ``settings`` without a metric of their own are judged by the loss."""

    name: str
    make: Callable[[], nn.Module]
    data: Splits | Callable[[int], Splits]
    budget: float
    settings: Mapping[str, Any]
    accuracy: bool = False
    """Whether the score is the accuracy, not the loss."""
    ratio: bool = False
    """Whether losses are compared by their logarithm (errors over several orders of magnitude)."""
    share: float = 1.0
    """Of trials: less than all where little of the training is wanted."""

    def compare(self, price: str, out: Path, recipes: Mapping[str, Arms], **options: Any) -> tl.Comparison:
        """The comparison at a price."""
        settings: Row = {"keep": "last"} | ({} if self.accuracy else {"metric": minus_loss})
        return tl.compare(
            self.make, self.data, recipes=recipes, budget=self.budget, time=PRICES[price], out=out / price,
            resume=True, progress=False, **(settings | dict(self.settings) | options),
        )  # fmt: skip

    def scores(self, comparison: tl.Comparison, label: str) -> list[float]:
        """On test data, seed by seed."""
        tested = [run.scores["test"] for run in comparison.results[label]]
        return [one.metric if self.accuracy else one.loss for one in tested]

    def gap(self, mine: Sequence[float], control: Sequence[float]) -> Row:
        """The paired difference in the score's own unit: nats, points, or the ratio of errors."""
        if not self.ratio:
            return difference(mine, control)
        logs = difference(list(map(math.log, mine)), list(map(math.log, control)))
        return logs | {key: math.exp(logs[key]) for key in ("mean", "low", "high")}


def table(task: Contest, price: str, comparison: tl.Comparison) -> list[Row]:
    """A row for the best rival, the best lift and plain AdamW, with the difference to the rival."""
    control, names = task.scores(comparison, RIVAL), {best(comparison, RIVAL): RIVAL}
    for label in (LIFT, PLAIN):
        names.setdefault(best(comparison, label), label)
    rows: list[Row] = []
    for name, label in names.items():
        runs, scores = comparison.results[label], task.scores(comparison, label)
        gap = None if label == RIVAL else task.gap(scores, control)
        wins = sum((a > b) if task.accuracy else (a < b) for a, b in zip(scores, control, strict=True))
        rows.append(
            {
                "task": task.name,
                "price": price,
                "way": name,
                "test": spread(scores),
                "to the best rival": None if gap is None else {k: gap[k] for k in ("mean", "low", "high")},
                "wins": None if gap is None else f"{wins} of {len(runs)}",
                "verdict": "" if gap is None else verdict(task, gap),
                "cost": statistics.fmean(run.cost for run in runs),
                "seconds": statistics.fmean(run.seconds for run in runs),
                "per seed": scores,
            }
        )
    return rows


def best(comparison: tl.Comparison, label: str) -> str:
    """The candidate in the table."""
    return comparison.tuning[label].values["arm"]


def verdict(task: Contest, gap: Row) -> str:
    """Better, worse, or within noise, by the paired interval."""
    even = 1.0 if task.ratio else 0.0
    above, below = gap["low"] > even, gap["high"] < even
    return "better" if (above if task.accuracy else below) else "worse" if above or below else "within noise"


def ranked(comparison: tl.Comparison, label: str) -> dict[str, float]:
    """All candidates and what they were worth on validation data, the best first."""
    tried = comparison.tuning[label].candidates
    return {name: tried[name] for name in sorted(tried, key=lambda name: -tried[name])}


def best_of_kinds(comparison: tl.Comparison, label: str, arms: Arms) -> dict[str, tl.Arm]:
    """The first of every kind."""
    first: dict[str, str] = {}
    for name in ranked(comparison, label):
        first.setdefault(kind(name), name)
    return {name: arms[name] for name in first.values()}


def fewer(arms: Arms, share: float) -> dict[str, tl.Arm]:
    """A share of every kind."""
    kinds: dict[str, list[str]] = {}
    for name in arms:
        kinds.setdefault(kind(name), []).append(name)
    left = {name for names in kinds.values() for name in thinned(names, share)}
    return {name: arm for name, arm in arms.items() if name in left}


def grid(
    optimizer: str, rates: Sequence[float], lift: str = "", recipe: Any = None, **options: Sequence[Any]
) -> dict[str, tl.Arm]:
    """An arm for every rate and every value of every option, by its name."""
    chosen: list[dict[str, Any]] = [{}]
    for name, values in options.items():
        chosen = [some | {name: value} for some in chosen for value in values]
    return dict(way(optimizer, {"lr": lr, **some}, lift, recipe) for some in chosen for lr in rates)


def way(optimizer: str, options: Mapping[str, Any], lift: str = "", recipe: Any = None) -> tuple[str, tl.Arm]:
    """An optimizer with its options and, for ours, a recipe: the name and the arm."""
    settings = [f"{key} {value:g}" if key == "lr" else f"{key} {value}" for key, value in options.items()]
    name = ", ".join([f"{lift} + {optimizer}" if lift else optimizer, *settings])
    return name, tl.Arm(recipe, partial(OPTIMIZERS[optimizer], **options))


def entry(
    out: Path,
    task: Contest,
    rivals: Arms,
    lifts: Arms,
    tuning: Sequence[int],
    seeds: Sequence[int],
    title: str,
    scale: str,
) -> Row:
    """What ``torchlift reproduce`` prints and writes of a contest."""
    if len(lifts) > len(rivals):
        raise ValueError(f"{task.name}: {len(lifts)} trials of lifts and {len(rivals)} of rivals")
    rivals, lifts = fewer(rivals, task.share), fewer(lifts, task.share)
    counts, tuning = (len(rivals), len(lifts)), thinned(tuning, task.share)
    torch.set_num_threads(1)  # one core for every way: seconds mean the same
    splits = task.data(seeds[0]) if callable(task.data) else task.data
    folder = out / f"{task.name}-{task.budget:g}-{len(splits.train[0])}"
    rows: list[Row] = []
    trials: list[Row] = []
    for price in PRICES:
        plain = {name: arm for name, arm in rivals.items() if kind(name) == "AdamW"}
        labels = {PLAIN: plain, RIVAL: rivals, LIFT: lifts}
        comparison = task.compare(price, folder, labels, seeds=seeds, tuning_seeds=tuning)
        rows += table(task, price, comparison)
        sign = 1.0 if task.accuracy else -1.0
        trials += [
            {"task": task.name, "price": price, "way": name, "validation": sign * value}
            if value > -math.inf
            else {"task": task.name, "price": price, "way": name, "validation": None, "reason": "no end"}
            for label in (RIVAL, LIFT)
            for name, value in ranked(comparison, label).items()
        ]
        rivals, lifts = (best_of_kinds(comparison, *one) for one in ((RIVAL, rivals), (LIFT, lifts)))
    return {
        "title": title,
        "source": "our own search",
        "finding": "; ".join(sentence(task, rows, price) for price in PRICES) + ".",
        "scale": scale,
        "seeds": list(seeds),
        "tuning seeds": list(tuning),
        "machine": machine(),
        "columns": [name for name in rows[0] if name != "per seed"],
        "rows": rows,
        "trials": trials,
        "notes": [
            f"Rivals had {counts[0]} trials, lifts {counts[1]}, at equal time; at equal FLOPs the best "
            "settings of every kind are tried again. The trials' seeds are not in the table.",
            "FLOPs include the optimizer's products and decompositions. Time is CPU time of one thread, that "
            "of the budget's epochs of plain AdamW; what a way takes is measured in turn with the others.",
        ],
    }


def sentence(task: Contest, rows: Sequence[Row], price: str) -> str:
    """A price in a sentence: the best lift against the best rival."""
    rival, lift, *_ = (row for row in rows if row["price"] == price)
    gap = lift["to the best rival"]
    unit = "points" if task.accuracy else "times its error" if task.ratio else "nats"
    factor, sign = 100.0 if task.accuracy else 1.0, "" if task.ratio else "+"
    mean, low, high = (f"{factor * gap[key]:{sign}.3g}" for key in ("mean", "low", "high"))
    return (
        f"equal {price}: {lift['way']} {lift['test']['mean']:.4g} against {rival['way']} "
        f"{rival['test']['mean']:.4g}, {mean} [{low}, {high}] {unit}: {lift['verdict']}"
    )
