"""Neural lifting, Table 2: LeNet-5 on CIFAR-10 with a lifter, without, and with its schedule alone."""

import statistics
from pathlib import Path

from torchlift.bench.reproduce import lenet
from torchlift.bench.reproduce.arms import Arm, Measured, Row, difference, machine, measure, spread
from torchlift.data import load

SEEDS = 5


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    scale: float | None = None,
    large: bool = False,
) -> Row:
    """All arms on all seeds; ``scale`` 1 is the paper's 249 epochs, 60 unless given; ``large``: ResNet-20."""
    epochs = lenet.FAST_EPOCHS if scale is None else lenet.PAPER_EPOCHS * scale
    splits, numbers = load("cifar10", data), range(seeds or SEEDS)
    groups = [(lenet.paper_arms(epochs, large), lenet.TUNED)]
    groups += [(lenet.augmented_arms(), f"{lenet.TUNED}, crops and flips")]
    rows: list[Row] = []
    for arms, control in groups:
        found = {arm.name: [measure(arm, splits, s, epochs, out / "table2") for s in numbers] for arm in arms}
        rows += [row(arm, found, control) for arm in arms]
    return {
        "title": "Table 2: LeNet-5 on CIFAR-10",
        "source": "Neural lifting, section 5.1, Tables 2 and 5",
        "finding": finding(rows),
        "scale": f"{epochs:g} plain epochs for every arm; the paper: 180 and 249",
        "seeds": list(numbers),
        "machine": machine(),
        "columns": [name for name in rows[0] if name != "per seed"],
        "rows": rows,
        "notes": [
            "Test accuracy in per cent of the weights that were best on validation data: for every arm the "
            "same 10,000 of the 50,000 training images. All arms spend the same FLOPs.",
            "The last column is the paired difference to tuned plain training under the same augmentation.",
        ],
    }


def row(arm: Arm, found: dict[str, list[Measured]], control: str) -> Row:
    """One line of the table."""
    runs = found[arm.name]
    tests = {name: [100 * one.test for one in some] for name, some in found.items()}
    return {
        "model": arm.name,
        "parameters": runs[0].params,
        "test accuracy": spread(tests[arm.name]),
        "paper": arm.paper,
        "cost": statistics.fmean(one.cost for one in runs),
        "seconds": statistics.fmean(one.seconds for one in runs),
        "to tuned plain": None if arm.name == control else difference(tests[arm.name], tests[control]),
        "per seed": tests[arm.name],
    }


def finding(rows: list[Row]) -> str:
    """The table in a sentence."""
    by_name = {row["model"]: row for row in rows}

    def told(name: str) -> str:
        gap = by_name[name]["to tuned plain"]
        interval = f"{gap['mean']:+.2f} [{gap['low']:+.2f}, {gap['high']:+.2f}]"
        return f"{name} {by_name[name]['test accuracy']['mean']:.2f} % ({interval} to tuned plain)"

    names = (lenet.LIFTING, lenet.SCHEDULE, lenet.OURS, f"{lenet.OURS}, crops and flips")
    return "; ".join(told(name) for name in names) + "."
