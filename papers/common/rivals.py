"""Ways of training held against each other at two prices: equal FLOPs, and equal time of one core.

A way is an optimizer with its options and, for ours, a recipe. Ways without a recipe, or with averaging
alone, are the rivals. They get at least as many trials as lifts, on seeds outside the table; the best of each
then meet on the table's seeds. Time is CPU time of one thread: that of ``budget`` epochs of plain AdamW, for
every way.
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
from torchlift.data import Splits
from torchlift.errors import TorchliftError
from torchlift.train import rng

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


@dataclasses.dataclass(frozen=True)
class Way:
    """An optimizer with its options and, for ours, a recipe."""

    optimizer: str
    lr: float
    options: tuple[tuple[str, Any], ...] = ()
    lift: str = ""
    recipe: Any = dataclasses.field(default=None, compare=False)

    @property
    def kind(self) -> str:
        """What its time depends on: the name without rates."""
        return f"{self.lift} + {self.optimizer}" if self.lift else self.optimizer

    @property
    def name(self) -> str:
        """The kind and its settings."""
        settings = ", ".join([f"lr {self.lr:g}", *(f"{key} {value}" for key, value in self.options)])
        return f"{self.kind}, {settings}"

    def factory(self) -> partial[torch.optim.Optimizer]:
        """What ``tl.fit`` takes."""
        return partial(OPTIMIZERS[self.optimizer], lr=self.lr, **dict(self.options))


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
    """Epochs of the two short runs that tell what a way takes."""

    def run(self, way: Way, seed: int, epochs: float, equal_cost: bool) -> Row:
        """One training; what diverges or refuses has no score, and a reason."""
        splits = self.data(seed)
        with rng.scope(seed):
            model = self.make()
        started = time.process_time()
        try:
            result = tl.fit(
                model, splits.train, splits.valid, test=splits.test, recipe=way.recipe,
                optimizer=way.factory(), epochs=epochs, equal_cost=equal_cost, seed=seed,
                progress=False, **dict(self.settings),
            )  # fmt: skip
        except TorchliftError as reason:
            return {"reason": str(reason)}
        seconds, scores = time.process_time() - started, result.scores
        found = {part: getattr(scores[part], self.score) for part in ("valid", "test")}
        return found | {"cost": result.cost, "seconds": seconds}


def kept(cells: Cells, place: Place, way: Way, seed: int, price: Price, *, careful: bool = False) -> Row:
    """A run at a price, once; where time is the price, by a quick measurement or a ``careful`` one."""

    def run() -> Row:
        epochs = place.budget if price == "FLOPs" else affordable(cells, place, way, careful)
        return place.run(way, seed, epochs, price == "FLOPs") | {"epochs": epochs}

    carefully = " by the careful measure" if careful and price == "time" else ""
    return cells.get(f"{place.name} | {way.name} | {seed} | {price}{carefully}", run)


def affordable(cells: Cells, place: Place, way: Way, careful: bool) -> float:
    """The epochs a way gets for the time that ``budget`` epochs of plain AdamW take."""
    factor = 4.0 if careful else 1.0
    start, slope, own_start, own_slope = cells.get(
        f"{place.name} | {'careful ' if careful else ''}time of {way.kind}",
        lambda: calibrated(place, way, factor),
    )
    return max(0.05 * place.budget, (start + slope * place.budget - own_start) / own_slope)


def calibrated(place: Place, way: Way, factor: float = 1.0, repeats: int = 6) -> list[float]:
    """Seconds of a start and of an epoch: plain AdamW's, then the way's; run in turn, the least of each.

    ``factor`` times as long as the place's probes: the longer, the less the noise of an epoch's time.
    """
    short, long = (factor * epochs for epochs in place.probes)
    plain = Way("AdamW", 1e-4)
    slow = dataclasses.replace(way, lr=min(way.lr, 1e-4))
    found: dict[tuple[int, float], float] = {}
    for _ in range(repeats):
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
    cells: Cells, place: Place, ways: Sequence[Way], seeds: Sequence[int], price: Price
) -> list[tuple[Way, Row]]:
    """Every way on the tuning seeds, best on validation data first."""
    rows: list[tuple[Way, Row]] = []
    for way in ways:
        runs = [kept(cells, place, way, seed, price) for seed in seeds]
        reasons = [run["reason"] for run in runs if "reason" in run]
        value = math.inf if reasons else statistics.fmean(judged(place, run["valid"]) for run in runs)
        row: Row = {"price": price, "way": way.name, "validation": None if reasons else shown(place, value)}
        rows.append((way, row | ({"reason": reasons[0]} if reasons else {}) | {"order": value}))
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
    cells: Cells, place: Place, ways: Sequence[Way], control: Way, seeds: Sequence[int], price: Price
) -> list[Row]:
    """A row per way on the table's seeds, with the paired difference to the control."""
    runs: dict[Way, list[Row]] = {way: [] for way in (control, *ways)}
    for seed in seeds:
        for way, found in runs.items():
            found.append(kept(cells, place, way, seed, price, careful=True))
    rows: list[Row] = []
    base = [judged(place, run["test"]) for run in runs[control]]
    for way, found in runs.items():
        mine = [judged(place, run["test"]) for run in found]
        gap = difference(base, mine)  # positive: better than the control
        rows.append(
            {
                "task": place.name,
                "price": price,
                "way": way.name,
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
    rivals: Sequence[Way],
    lifts: Sequence[Way],
    tuning: Sequence[int],
    seeds: Sequence[int],
    confirmed: int = 1,
) -> tuple[list[Row], list[Row]]:
    """The table of a place at both prices and all its trials: best rival, best lifts, best plain AdamW."""
    if len(lifts) > len(rivals):
        raise ValueError(f"{place.name}: {len(lifts)} trials of lifts and {len(rivals)} of rivals")
    rows: list[Row] = []
    trials: list[Row] = []
    for price in PRICES:
        theirs = tuned(cells, place, rivals, tuning, price)
        ours = tuned(cells, place, lifts, tuning, price)
        rivals, lifts = best_of_kinds(theirs), best_of_kinds(ours)  # what the next price tries
        trials += [{"task": place.name, **row} for _, row in (*theirs, *ours)]
        best = theirs[0][0]
        plain = next(way for way, _ in theirs if way.kind == "AdamW")
        chosen = [way for way, _ in ours[:confirmed]] + ([plain] if plain != best else [])
        rows += table(cells, place, chosen, best, seeds, price)
    return rows, trials


def best_of_kinds(ranked: Sequence[tuple[Way, Row]]) -> list[Way]:
    """The first of every kind."""
    first: dict[str, Way] = {}
    for way, _ in ranked:
        first.setdefault(way.kind, way)
    return list(first.values())


def grid(
    optimizer: str, rates: Sequence[float], lift: str = "", recipe: Any = None, **options: Sequence[Any]
) -> list[Way]:
    """A way for every rate and every value of every option."""
    chosen: list[tuple[tuple[str, Any], ...]] = [()]
    for name, values in options.items():
        chosen = [(*some, (name, value)) for some in chosen for value in values]
    return [Way(optimizer, lr, some, lift, recipe) for some in chosen for lr in rates]


def entry(
    out: Path,
    place: Place,
    rivals: Sequence[Way],
    lifts: Sequence[Way],
    tuning: Sequence[int],
    seeds: Sequence[int],
    title: str,
    scale: str,
    notes: Sequence[str] = (),
    **more: Any,
) -> Row:
    """What ``torchlift reproduce`` prints and writes of a contest."""
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
