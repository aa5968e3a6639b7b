"""Which level for which layer: a knapsack over measured options; how many channels of which coupling.

min Σ_l cost_l(level_l)   subject to   Σ_l size_l(level_l) ≤ budget
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

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
    position, chosen = UNITS, list[Option]()
    for options, pick in zip(reversed(layers), reversed(taken), strict=True):
        option = options[int(pick[position])]
        chosen.append(option)
        position -= units(option.size, unit)
    return chosen[::-1]


def units(size: float, unit: float) -> int:
    """Parts of the budget that a size takes."""
    return -int(-size // unit)


PARTS = 16
"""A move gives back or takes this part of a coupling's channels, or a few times as much."""

FARTHEST = 7 / 8
"""At most so much of a coupling goes."""


def allocate_cuts(
    counts: Mapping[str, int],
    costs: Mapping[str, Sequence[float]],
    sizes: Callable[[Mapping[str, int]], Sequence[float]],
    steps: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """How many channels of each coupling go: the least Σ cost(count) with no size above that of ``counts``.

    ``costs[name][k]`` is the cost of k channels less, ``sizes`` are channels, parameters, MACs. Exchanges, as
    long as one pays: some channels of one coupling come back, some of another go where sizes ask for it. One
    pays where the cost falls by a larger part than the parameters do: what is polished needs them.
    ``steps`` are the least moves of couplings whose widths are to stay multiples.
    """

    def worth(counts: Mapping[str, int], parameters: float) -> float:
        """Σ cost / parameters: less is better."""
        return sum(own[counts[name]] for name, own in costs.items()) / max(parameters, 1.0)

    best = dict(counts)
    limits = sizes(counts)
    steps = {name: max(1, len(own) // PARTS) for name, own in costs.items()} | dict(steps or {})
    farthest = {name: max(counts[name], int(FARTHEST * len(own))) for name, own in costs.items()}
    while True:
        worth_now = worth(best, sizes(best)[1])
        moves: list[tuple[float, str, int, str, int]] = []
        for back, least in steps.items():
            fewer = best[back] - least
            if fewer < 0:
                continue
            gain = costs[back][best[back]] - costs[back][fewer]
            if gain > 0:
                moves.append((-gain, back, fewer, back, fewer))
            for other, step in steps.items():
                for more in range(best[other] + step, farthest[other] + 1, step) if other != back else ():
                    paid = costs[other][more] - costs[other][best[other]]
                    if paid < gain:
                        moves.append((paid - gain, back, fewer, other, more))
        for _, back, fewer, other, more in sorted(moves):
            trial = best | {back: fewer, other: more}
            left = sizes(trial)
            pays = worth(trial, left[1]) < worth_now
            if pays and all(size <= limit for size, limit in zip(left, limits, strict=True)):
                best = trial
                break
        else:
            return best
