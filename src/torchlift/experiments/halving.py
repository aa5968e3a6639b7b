"""Successive halving: many short trials, the best third three times longer, and so on until all is spent.

Jamieson and Talwalkar (2016). Points (candidate, rate) are drawn by Optuna; each rung is a run of its own
from the start, because a recipe that compresses delivers only at its end.
"""

import dataclasses
import math
from collections.abc import Sequence

from torchlift.experiments.constraints import Constraints, Delivered, next_rung_order
from torchlift.experiments.tune.optuna_extra import optuna

ETA = 3
EXTRA = 4
"""Points beyond one for each candidate."""
SHORTEST_TRIAL = 1 / 20
"""No trial has less than this part of what all have: shorter ones say little of what a whole run reaches."""
SPAN = (0.1, 10.0)
LIKELY = 4
"""So many candidates are tried first."""
LAST = 2
"""At least so many in a rung after the first: plain and its best rival."""


@dataclasses.dataclass(frozen=True)
class Rung:
    """So many runs of so many plain epochs each."""

    runs: int
    epochs: float


def plan_rungs(
    budget: float, points: int, shortest: float = SHORTEST_TRIAL, overhead: float = 0.0
) -> list[Rung]:
    """Rungs that spend the budget, each three times as long as the one before and a third as many.

    ``overhead``: what a run costs beside its epochs. As many rungs, then as many points, as leave the
    shortest runs an epoch, the part ``shortest`` of the budget and half their overhead:
    Σₖ nₖ (3ᵏ b + overhead) = budget, b ≥ least. Two runs of that length are the least.
    """
    least = max(1.0, (1 - 1e-9) * shortest * budget, overhead / 2)  # else trials do not rank, or hardly train
    for rungs in (3, 2, 1):
        for first in range(max(points, LAST), LAST - 1, -1):
            counts = [first] + [max(LAST, math.ceil(first / ETA**k)) for k in range(1, rungs)]
            units = sum(n * ETA**k for k, n in enumerate(counts))
            shortest = (budget - overhead * sum(counts)) / units
            if shortest >= least and (rungs == 1 or first >= ETA * LAST):
                return [Rung(n, shortest * ETA**k) for k, n in enumerate(counts)]
    return [Rung(LAST, least)]


RatePoint = tuple[str, float]
"""A candidate by its name, and a multiple of its rate."""


def suggest(
    candidates: Sequence[str],
    rows: Sequence[Delivered],
    taken: Sequence[RatePoint],
    constraints: Constraints,
    seed: int,
) -> RatePoint:
    """Another point for the first rung, from Optuna, which knows the metric and the file of those before."""
    package = optuna()
    sampler = package.samplers.TPESampler(seed=seed + len(taken), n_startup_trials=LAST)
    study = package.create_study(directions=["maximize", "minimize"], sampler=sampler)
    space = {
        "candidate": package.distributions.CategoricalDistribution(tuple(candidates)),
        "rate": package.distributions.FloatDistribution(*SPAN, log=True),
    }
    for row in rows:
        if not row.reason:
            params = {"candidate": row.name, "rate": row.rate}
            values = [constraints.good(row), float(row.bytes)]
            study.add_trial(package.trial.create_trial(params=params, distributions=space, values=values))
    while True:
        trial = study.ask(space)
        point = trial.params["candidate"], float(f"{trial.params['rate']:.3g}")
        if point not in taken:
            return point


def starting_order(candidates: Sequence[str]) -> list[RatePoint]:
    """Plain and the likeliest candidates, these again at a larger rate, then the others, then plain."""
    plain, *others = candidates
    likely, rest = others[:LIKELY], others[LIKELY:]
    points = [(plain, 1.0), *((name, 1.0) for name in likely), *((name, 3.0) for name in likely[:-1])]
    return [*points, *((name, 1.0) for name in rest), (plain, 3.0), (plain, 0.3)]


def promoted(
    rows: Sequence[Delivered], count: int, constraints: Constraints, control: str
) -> list[Delivered]:
    """Who goes on: the best of plain always, then the others as ranked."""
    good = [row for row in rows if not row.reason]
    plain = sorted((row for row in good if row.name == control), key=lambda row: -constraints.good(row))[:1]
    others = [row for row in next_rung_order(good, constraints) if row not in plain]
    return [*plain, *others][:count]
