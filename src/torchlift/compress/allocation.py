"""Which level for which layer: a knapsack over measured options.

min Σ_l cost_l(level_l)   subject to   Σ_l size_l(level_l) ≤ budget
"""

import dataclasses
from collections.abc import Sequence

import torch

UNITS = 4096
"""Parts that a budget is divided into."""


@dataclasses.dataclass(frozen=True)
class Option:
    """One level of one layer: what it takes and what it costs."""

    level: int
    size: float
    cost: float


def knapsack(layers: Sequence[Sequence[Option]], budget: float) -> list[Option] | None:
    """One option for each layer with the least total cost within the budget; None: not even the smallest fit.

    A dynamic program over the budget in :data:`UNITS` parts; sizes are rounded up, so that the budget holds.
    """
    least = [min(options, key=lambda o: (o.size, o.cost)) for options in layers]
    if sum(option.size for option in least) > budget:
        return None
    unit = budget / UNITS
    best = torch.zeros(UNITS + 1, dtype=torch.float64)
    taken: list[torch.Tensor] = []
    for options in layers:
        trial = torch.full((len(options), UNITS + 1), torch.inf, dtype=torch.float64)
        for row, option in enumerate(options):
            width = units(option.size, unit)
            if width <= UNITS:
                trial[row, width:] = best[: UNITS + 1 - width] + option.cost
        best, pick = trial.min(0)
        taken.append(pick)
    if not bool(torch.isfinite(best[UNITS])):
        return least
    place, chosen = UNITS, list[Option]()
    for options, pick in zip(reversed(layers), reversed(taken), strict=True):
        option = options[int(pick[place])]
        chosen.append(option)
        place -= units(option.size, unit)
    return chosen[::-1]


def units(size: float, unit: float) -> int:
    """Parts of the budget that a size takes."""
    return -int(-size // unit)
