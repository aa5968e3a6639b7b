"""Ticket search: CS, IMP, IMP-C and ISS side by side (thesis Figures 4.3–4.4, Table 4.2)."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from papers.common.arms import Row, selected_arms, without_arms
from papers.common.protocol import thinned
from papers.savarese_thesis.pruning_runs import (
    Setting,
    as_record,
    digits,
    of,
    resnet20,
    sgd,
    side_by_side,
    sized,
)
from torchlift import Arm
from torchlift.recipes import IterativeMagnitude, IterativeStochastic, TicketSearch

PAPER = {"IMP": 0.209, "IMP-C": 0.167, "CS": 0.123}  # Table 4.2, ResNet-20: weights left, sparsest matching
STARTS = (-0.3, -0.24, -0.18, -0.12, -0.06, 0.0, 0.06, 0.12, 0.18, 0.24, 0.3)
ROUNDS = 5
MAGNITUDE_ROUNDS, MAGNITUDE_RATE = (5, 7, 8, 10, 15, 20, 30), 0.2


def searches(training: Setting) -> dict[str, Arm]:
    """As in the thesis: five rounds of CS from eleven s_init, up to thirty rounds of 20 % of IMP."""
    where, several, early = training.where, training.rounds(ROUNDS), training.rewind
    ways = {
        f"CS, s_init {start:g}": training.arm(
            TicketSearch(several, early, s_init=start, where=where), several + 1
        )
        for start in thinned(STARTS, training.share)
    }
    for rounds in sorted({training.rounds(count) for count in MAGNITUDE_ROUNDS}):
        rewound = IterativeMagnitude(rounds, MAGNITUDE_RATE, early, where)
        ways[f"IMP, round {rounds}"] = training.arm(rewound, rounds + 1)
        continued = IterativeMagnitude(rounds, MAGNITUDE_RATE, where=where)
        ways[f"IMP-C, round {rounds}"] = training.arm(continued, rounds + 1)
    return ways


def small_searches(training: Setting, rounds: int = 3) -> dict[str, Arm]:
    """The stand-in's: few steps move s little, and few rounds need larger rates."""
    where, early = training.where, training.rewind
    recipes: dict[str, Any] = {
        f"CS, s_init {start}": TicketSearch(rounds, early, s_init=start, where=where)
        for start in (-0.05, -0.02, 0.0)
    }
    for rate in (0.3, 0.5, 0.6):
        recipes[f"IMP, rate {rate}"] = IterativeMagnitude(rounds, rate, early, where)
        recipes[f"IMP-C, rate {rate}"] = IterativeMagnitude(rounds, rate, where=where)
    recipes["ISS, s_init 1"] = IterativeStochastic(rounds, early, where)
    return {name: training.arm(recipe, rounds + 1) for name, recipe in recipes.items()}


def setting(stand_in: bool, data: str | None) -> Setting:
    """ResNet-20 on CIFAR-10, 85 epochs a round; the stand-in: a perceptron on digits, 15 epochs."""
    return digits(15.0, **sgd(0.1)) if stand_in else resnet20(data)


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
    stand_in: bool = False,
    arms: str | None = None,
) -> Row:
    """Every search on every seed; each ticket trained as long as a round, beside the dense network."""
    training = sized(setting(stand_in, data), epochs, images, device)
    ways = small_searches(training) if stand_in else searches(training)
    chosen = {name: ways[name] for name in selected_arms(ways, arms)}
    trials = side_by_side(training, chosen, seeds or 3, out / "ticket-search.jsonl")
    left = {f"left, {kind}": 100 * share for kind, share in sparsest(trials).items()}
    return as_record(
        "Ticket search", "Figures 4.3–4.4, Table 4.2", training, stand_in, trials, finding=matching(trials),
        paper=PAPER, notes=[f"A ticket starts from the weights of epoch {training.rewind}."], **left,
        **without_arms(ways, chosen),
    )  # fmt: skip


def matching(rows: Sequence[Row]) -> str:
    """The sparsest tickets in words."""
    dense = statistics.fmean(of(rows, "dense", "accuracy"))
    ordered = sorted(sparsest(rows).items(), key=lambda item: item[1])
    listed = ", ".join(f"{kind} {100 * left:.1f} %" for kind, left in ordered)
    return (
        f"Weights left in the sparsest matching tickets (dense {dense:.3f}): {listed or 'no search matched'}."
    )


def sparsest(rows: Sequence[Row]) -> dict[str, float]:
    """Of each kind of search, the sparsest setting whose mean accuracy matches the dense network's."""
    dense = statistics.fmean(of(rows, "dense", "accuracy"))
    best: dict[str, float] = {}
    for name in dict.fromkeys(row["method"] for row in rows if row["method"] != "dense"):
        if statistics.fmean(of(rows, name, "accuracy")) >= dense:
            kind, left = name.partition(",")[0], 1 - statistics.fmean(of(rows, name, "sparsity"))
            best[kind] = min(best.get(kind, 1.0), left)
    return best
