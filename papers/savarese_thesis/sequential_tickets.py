"""Sequential search: sequential CS against IMP, round by round (thesis Figure 4.13)."""

from collections.abc import Sequence
from pathlib import Path

from papers.common.arms import Row
from papers.savarese_thesis.pruning_runs import (
    Setting,
    as_record,
    digits,
    means,
    resnet20,
    sgd,
    side_by_side,
    sized,
)
from torchlift import Arm
from torchlift.recipes import IterativeMagnitude, SequentialSparsification


def setting(stand_in: bool, data: str | None) -> tuple[Setting, float, tuple[int, ...]]:
    """With the rate and the rounds: 20 % of ResNet-20 in 30 rounds; stand-in: half of a perceptron in 6."""
    if not stand_in:
        return resnet20(data), 0.2, (1, 5, 10, 15, 20, 25, 30)
    return digits(15.0, **sgd(0.1)), 0.5, (1, 2, 3, 4, 5, 6)


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
    stand_in: bool = False,
) -> Row:
    """Tickets after several numbers of rounds, each trained from the weights of epoch 2."""
    training, rate, rounds = setting(stand_in, data)
    training = sized(training, epochs, images, device)
    ways, where = dict[str, Arm](), training.where
    for count in sorted({training.rounds(number) for number in rounds}):
        ways[f"sequential CS, round {count}"] = training.arm(
            SequentialSparsification(count, rate, training.rewind, where=where), count + 1
        )
        ways[f"IMP, round {count}"] = training.arm(
            IterativeMagnitude(count, rate, training.rewind, where), count + 1
        )
    trials = side_by_side(training, ways, seeds or 3, out / "sequential-tickets.jsonl")
    return as_record(
        "Sequential search", "section 4.5.5, Figure 4.13", training, stand_in, trials,
        finding=finding(means(trials)), rate=rate,
        notes=[f"Each round drops {100 * rate:.0f} % of what is left; s_init = 0."],
    )  # fmt: skip


def finding(table: Sequence[Row]) -> str:
    """Both at every sparsity."""
    by_method = {row["method"]: row for row in table}
    pairs: list[str] = []
    for name, row in by_method.items():
        kind, _, count = name.partition(", ")
        if kind == "sequential CS":
            ours, theirs = (one["accuracy"]["mean"] for one in (row, by_method[f"IMP, {count}"]))
            pairs.append(f"{ours:.3f} and {theirs:.3f} at {100 * row['sparsity']['mean']:.0f} %")
    return f"Dense {by_method['dense']['accuracy']['mean']:.3f}; sequential CS and IMP: {', '.join(pairs)}."
