"""Faster magnitude pruning finds worse tickets: 10, 20 and 40 % a round (thesis Figure 4.8)."""

import math
from collections.abc import Sequence
from pathlib import Path

from papers.common.arms import Row
from papers.savarese_thesis.pruning_runs import as_record, means, resnet20, side_by_side, sized
from torchlift import Arm
from torchlift.recipes import IterativeMagnitude

RATES, LEFT = (0.1, 0.2, 0.4), (0.4, 0.2, 0.1, 0.05, 0.01)
MOST = 30


def rounds(rate: float, left: float) -> int:
    """How many rounds at a rate leave about so many weights."""
    return min(MOST, round(math.log(left) / math.log(1 - rate)))


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
) -> Row:
    """Tickets of ResNet-20 at about the same sparsities by each rate."""
    setting = sized(resnet20(data), epochs, images, device)
    ways: dict[str, Arm] = {}
    for rate in RATES:
        for count in sorted({setting.rounds(rounds(rate, left)) for left in LEFT}):
            recipe = IterativeMagnitude(count, rate, setting.rewind, setting.where)
            ways[f"rate {rate:g}, round {count}"] = setting.arm(recipe, count + 1)
    trials = side_by_side(setting, ways, seeds or 3, out / "imp-rates.jsonl")
    at = {f"accuracy at rate {rate:g}": near(means(trials), rate) for rate in RATES}
    listed = ", ".join(f"{key.removeprefix('accuracy at ')}: {one['mean']:.3f}" for key, one in at.items())
    return as_record(
        "Rates of magnitude pruning", "section 4.5.1, Figure 4.8", setting, False, trials,
        finding=f"Accuracy of the ticket with about 5 % of the weights, {listed}.", **at,
    )  # fmt: skip


def near(table: Sequence[Row], rate: float, left: float = 0.05) -> Row:
    """The accuracy of a rate's ticket nearest to a sparsity."""
    mine = [row for row in table if row["method"].startswith(f"rate {rate:g},")]
    return min(mine, key=lambda row: abs(1 - row["sparsity"]["mean"] - left))["accuracy"]
