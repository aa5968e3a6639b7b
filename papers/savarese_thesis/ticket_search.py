"""Ticket search: CS, IMP, IMP-C and ISS side by side (thesis Figures 4.3–4.4, Table 4.2)."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from papers.common.arms import Row
from papers.savarese_thesis.pruning_runs import Setting, Way, digits, of, resnet20, sgd, side_by_side, told
from torchlift.recipes import IterativeMagnitude, IterativeStochastic, TicketSearch

PAPER = {"IMP": 0.209, "IMP-C": 0.167, "CS": 0.123}  # Table 4.2, ResNet-20: weights left, sparsest matching
STARTS = (-0.05, -0.02, 0.0)
RATES = (0.3, 0.5, 0.6)


def searches(rounds: int, rewind: int, where: str) -> dict[str, Way]:
    """CS with several s_init as in the thesis; magnitude pruning with several rates."""
    recipes: dict[str, Any] = {
        f"CS, s_init {start}": TicketSearch(rounds, rewind, s_init=start, where=where) for start in STARTS
    }
    for rate in RATES:
        recipes[f"IMP, rate {rate}"] = IterativeMagnitude(rounds, rate, rewind, where)
        recipes[f"IMP-C, rate {rate}"] = IterativeMagnitude(rounds, rate, where=where)
    recipes["ISS, s_init 1"] = IterativeStochastic(rounds, rewind, where)
    return {name: Way(recipe, rounds + 1) for name, recipe in recipes.items()}


def setting(scale: float, data: str | None) -> tuple[Setting, int]:
    """ResNet-20 on CIFAR-10, 85 epochs a round, 5 rounds; or a perceptron on digits, 15 epochs, 3 rounds."""
    if scale >= 1:
        return resnet20(85.0, data, **sgd(0.1, batch=128)), 5
    return digits(15.0, **sgd(0.1)), 3


def run(
    out: Path = Path("runs/reproduce"), data: str | None = None, seeds: int = 3, scale: float = 0.02
) -> Row:
    """Every search on every seed; each ticket trained as long as a round, beside the dense network."""
    place, rounds = setting(scale, data)
    trials = side_by_side(place, searches(rounds, 2, place.where), seeds, out / "ticket-search.jsonl")
    return told(
        "Ticket search", "Figures 4.3–4.4, Table 4.2", place, scale, trials, finding=matching(trials),
        paper=PAPER, rounds=rounds, notes=[f"{rounds} rounds, then the ticket from the weights of epoch 2."],
    )  # fmt: skip


def matching(rows: Sequence[Row]) -> str:
    """Of each kind of search, the sparsest setting whose mean accuracy matches the dense network's."""
    dense = statistics.fmean(of(rows, "dense", "accuracy"))
    best: dict[str, float] = {}
    for name in dict.fromkeys(row["method"] for row in rows if row["method"] != "dense"):
        if statistics.fmean(of(rows, name, "accuracy")) >= dense:
            kind, left = name.partition(",")[0], 1 - statistics.fmean(of(rows, name, "sparsity"))
            best[kind] = min(best.get(kind, 1.0), left)
    listed = ", ".join(
        f"{kind} {100 * left:.1f} %" for kind, left in sorted(best.items(), key=lambda i: i[1])
    )
    return (
        f"Weights left in the sparsest matching tickets (dense {dense:.3f}): {listed or 'no search matched'}."
    )
