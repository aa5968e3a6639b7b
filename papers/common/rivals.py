"""Ways of training held against each other at two prices: equal FLOPs, and equal time of one core.

Each is a :class:`torchlift.Arm`: an optimizer with its options and, for ours, a recipe. Those without
a recipe, or with averaging alone, are the rivals. They get at least as many trials as lifts, on seeds outside
the table; the best of each then meet on the table's seeds. Time is CPU time of one thread: that of ``budget``
epochs of plain AdamW, for every arm.
"""

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

import torchlift as tl
from papers.common.arms import Row, difference, machine, spread
from papers.common.cells import Cells
from papers.common.protocol import thinned
from torchlift.data import Splits
from torchlift.errors import TorchliftError
from torchlift.experiments.arm import Setup
from torchlift.train.run.names import option

Price = Literal["FLOPs", "time"]
PRICES: tuple[Price, ...] = ("time", "FLOPs")

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": partial(torch.optim.SGD, momentum=0.9),
    "AdamW": partial(torch.optim.AdamW, weight_decay=0.0),
    "Muon": tl.optim.Muon,
    "SOAP": tl.optim.Soap,
    "Adam": torch.optim.Adam,
    "paper's SGD": partial(torch.optim.SGD, weight_decay=1e-4),
}


Arms = Mapping[str, tl.Arm]
"""By their names: the kind, then the settings."""


def kind(name: str) -> str:
    """What an arm's time depends on: its name without rates and options."""
    return name.partition(", lr ")[0]


@dataclasses.dataclass(frozen=True)
class Place:
    """A model, its data and its budget."""

    name: str
    make: Callable[[], nn.Module]
    data: Callable[[int], Splits]
    budget: float
    settings: Mapping[str, Any]
    score: Literal["loss", "metric"] = "loss"
    ratio: bool = False
    """Whether scores are compared by their logarithm (errors over several orders of magnitude)."""
    probes: tuple[float, float] = (0.5, 1.5)
    """Epochs of the two short runs that tell what an arm takes."""
    share: float = 1.0
    """Of trials and measurements: less than all where little of the training is wanted."""

    def run(self, arm: tl.Arm, seed: int, epochs: float, equal_cost: bool) -> Row:
        """One training; what diverges or refuses has no score, and a reason."""
        splits = self.data(seed)
        setup = Setup(self.make, (splits.train, splits.valid, splits.test), self.settings)
        started = time.process_time()
        try:
            result = setup.run(arm, seed, epochs=epochs, equal_cost=equal_cost, progress=False)
        except TorchliftError as reason:
            return {"reason": str(reason)}
        seconds, scores = time.process_time() - started, result.scores
        found = {part: getattr(scores[part], self.score) for part in ("valid", "test")}
        return found | {"cost": result.cost, "seconds": seconds}


def kept(
    cells: Cells, place: Place, name: str, arm: tl.Arm, seed: int, price: Price, *, careful: bool = False
) -> Row:
    """A run at a price, once; where time is the price, by a quick measurement or a ``careful`` one."""

    def run() -> Row:
        epochs = place.budget if price == "FLOPs" else affordable(cells, place, name, arm, careful)
        return place.run(arm, seed, epochs, price == "FLOPs") | {"epochs": epochs}

    carefully = " by the careful measure" if careful and price == "time" else ""
    return cells.get(f"{place.name} | {name} | {seed} | {price}{carefully}", run)


def affordable(cells: Cells, place: Place, name: str, arm: tl.Arm, careful: bool) -> float:
    """The epochs an arm gets for the time that ``budget`` epochs of plain AdamW take."""
    factor = 4.0 if careful else 1.0
    start, slope, own_start, own_slope = cells.get(
        f"{place.name} | {'careful ' if careful else ''}time of {kind(name)}",
        lambda: calibrated(place, arm, factor),
    )
    return max(0.05 * place.budget, (start + slope * place.budget - own_start) / own_slope)


def calibrated(place: Place, arm: tl.Arm, factor: float = 1.0, repeats: int = 6) -> list[float]:
    """Seconds of a start and of an epoch: plain AdamW's, then the arm's; run in turn, the least of each.

    ``factor`` times as long as the place's probes: the longer, the less the noise of an epoch's time.
    """
    short, long = (factor * epochs for epochs in place.probes)
    assert arm.optimizer is not None, "every arm of a contest has one"
    rate = min(1e-4, option(arm.optimizer, "lr"))
    plain = tl.Arm(optimizer=partial(OPTIMIZERS["AdamW"], lr=1e-4))
    slow = tl.Arm(arm.recipe, partial(arm.optimizer, lr=rate))
    found: dict[tuple[int, float], float] = {}
    for _ in range(math.ceil(place.share * repeats)):
        for number, one in enumerate((plain, slow)):
            for epochs in (short, long):
                seconds = place.run(one, 0, epochs, False)["seconds"]
                found[number, epochs] = min(seconds, found.get((number, epochs), math.inf))
    lines: list[float] = []
    for number in (0, 1):
        slope = (found[number, long] - found[number, short]) / (long - short)
        lines += [found[number, short] - slope * short, slope]
    return lines


def tuned(
    cells: Cells, place: Place, arms: Arms, seeds: Sequence[int], price: Price
) -> list[tuple[str, Row]]:
    """Every arm on the tuning seeds, best on validation data first."""
    rows: list[tuple[str, Row]] = []
    for name, arm in arms.items():
        runs = [kept(cells, place, name, arm, seed, price) for seed in seeds]
        reasons = [run["reason"] for run in runs if "reason" in run]
        value = math.inf if reasons else statistics.fmean(judged(place, run["valid"]) for run in runs)
        row: Row = {"price": price, "way": name, "validation": None if reasons else shown(place, value)}
        rows.append((name, row | ({"reason": reasons[0]} if reasons else {}) | {"order": value}))
    rows.sort(key=lambda pair: pair[1]["order"])
    for _, row in rows:
        del row["order"]
    return rows


def judged(place: Place, value: float) -> float:
    """A score as a number of which less is better."""
    if place.ratio:
        return math.log(value)
    return value if place.score == "loss" else -value


def shown(place: Place, value: float) -> float:
    """The inverse of :func:`judged`."""
    return math.exp(value) if place.ratio else value if place.score == "loss" else -value


def table(
    cells: Cells, place: Place, arms: Arms, control: str, seeds: Sequence[int], price: Price
) -> list[Row]:
    """A row per arm on the table's seeds, with the paired difference to the control."""
    runs: dict[str, list[Row]] = {way: [] for way in arms}
    for seed in seeds:
        for way, found in runs.items():
            found.append(kept(cells, place, way, arms[way], seed, price, careful=True))
    rows: list[Row] = []
    base = [judged(place, run["test"]) for run in runs[control]]
    for way, found in runs.items():
        mine = [judged(place, run["test"]) for run in found]
        gap = difference(base, mine)  # positive: better than the control
        rows.append(
            {
                "task": place.name,
                "price": price,
                "way": way,
                "test": spread([run["test"] for run in found]),
                "to the best rival": None if way == control else as_told(place, gap),
                "wins": None if way == control else f"{gap['wins']} of {len(seeds)}",
                "verdict": "" if way == control else verdict(gap),
                "cost": statistics.fmean(run["cost"] for run in found),
                "epochs": statistics.fmean(run["epochs"] for run in found),
                "seconds": statistics.fmean(run["seconds"] for run in found),
                "per seed": [run["test"] for run in found],
            }
        )
    return rows


def as_told(place: Place, gap: Row) -> Row:
    """The difference in the score's own unit: nats, points, or the ratio of errors."""
    mean, low, high = gap["mean"], gap["low"], gap["high"]
    if place.ratio:
        return {"mean": math.exp(-mean), "low": math.exp(-high), "high": math.exp(-low)}
    if place.score == "loss":
        return {"mean": -mean, "low": -high, "high": -low}
    return {"mean": mean, "low": low, "high": high}


def verdict(gap: Row) -> str:
    """Better, worse, or within noise, by the paired interval."""
    return "better" if gap["low"] > 0 else "worse" if gap["high"] < 0 else "within noise"


def contest(
    cells: Cells,
    place: Place,
    rivals: Arms,
    lifts: Arms,
    tuning: Sequence[int],
    seeds: Sequence[int],
    confirmed: int = 1,
) -> tuple[list[Row], list[Row]]:
    """The table of a place at both prices and all its trials: best rival, best lifts, best plain AdamW."""
    rows: list[Row] = []
    trials: list[Row] = []
    for price in PRICES:
        theirs = tuned(cells, place, rivals, tuning, price)
        ours = tuned(cells, place, lifts, tuning, price)
        rivals, lifts = best_of_kinds(theirs, rivals), best_of_kinds(ours, lifts)  # what the next price tries
        trials += [{"task": place.name, **row} for _, row in (*theirs, *ours)]
        best = theirs[0][0]
        plain = next(name for name, _ in theirs if kind(name) == "AdamW")
        names = dict.fromkeys([best, *(name for name, _ in ours[:confirmed]), plain])
        rows += table(cells, place, {name: (rivals | lifts)[name] for name in names}, best, seeds, price)
    return rows, trials


def best_of_kinds(ranked: Sequence[tuple[str, Row]], arms: Arms) -> dict[str, tl.Arm]:
    """The first of every kind."""
    first: dict[str, str] = {}
    for name, _ in ranked:
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
    place: Place,
    rivals: Arms,
    lifts: Arms,
    tuning: Sequence[int],
    seeds: Sequence[int],
    title: str,
    scale: str,
    notes: Sequence[str] = (),
    **more: Any,
) -> Row:
    """What ``torchlift reproduce`` prints and writes of a contest."""
    if len(lifts) > len(rivals):
        raise ValueError(f"{place.name}: {len(lifts)} trials of lifts and {len(rivals)} of rivals")
    rivals, lifts = fewer(rivals, place.share), fewer(lifts, place.share)
    tuning = thinned(tuning, place.share)
    torch.set_num_threads(1)  # one core for every way: seconds mean the same
    cells = Cells(out / f"{place.name.replace(' ', '-')}-{place.budget:g}.jsonl")
    rows, trials = contest(cells, place, rivals, lifts, tuning, seeds, **more)
    return {
        "title": title,
        "source": "our own search",
        "finding": "; ".join(told(place, rows, price) for price in PRICES) + ".",
        "scale": scale,
        "seeds": list(seeds),
        "tuning seeds": list(tuning),
        "machine": machine(),
        "columns": [name for name in rows[0] if name != "per seed"],
        "rows": rows,
        "trials": trials,
        "notes": [
            f"Rivals had {len(rivals)} trials, lifts {len(lifts)}, at equal time; at equal FLOPs the best "
            "settings of every kind are tried again. The trials' seeds are not in the table.",
            "FLOPs include the optimizer's products and decompositions. Time is CPU time of one thread, that "
            "of the budget's epochs of plain AdamW; what a way takes is measured in turn with AdamW.",
            *notes,
        ],
    }


def told(place: Place, rows: Sequence[Row], price: Price) -> str:
    """A price in a sentence: the best lift against the best rival."""
    mine = [row for row in rows if row["price"] == price]
    rival, lift = mine[0], mine[1]
    gap = lift["to the best rival"]
    unit = "times its error" if place.ratio else "nats" if place.score == "loss" else "points"
    factor = 1.0 if place.ratio or place.score == "loss" else 100.0
    sign = "" if place.ratio else "+"
    mean, low, high = (f"{factor * gap[key]:{sign}.3g}" for key in ("mean", "low", "high"))
    return (
        f"equal {price}: {lift['way']} {lift['test']['mean']:.4g} against {rival['way']} "
        f"{rival['test']['mean']:.4g}, {mean} [{low}, {high}] {unit}: {lift['verdict']}"
    )
