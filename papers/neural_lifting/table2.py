"""Neural lifting, Table 2: LeNet-5 on CIFAR-10 with a lifter, without, and with its schedule alone."""

import statistics
from pathlib import Path

from papers.common.arms import Entry, Measured, Row, difference, machine, measure, spread
from papers.neural_lifting import lenet
from torchlift.data import load

SEEDS = 5


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    scale: float | None = None,
    large: bool = False,
) -> Row:
    """All arms on all seeds; ``scale`` 1 is the paper's 249 epochs; ``large`` adds ResNet-20."""
    splits, numbers, protocols = load("cifar10", data), range(seeds or SEEDS), lenet.protocols(scale, large)
    rows: list[Row] = []
    for one in protocols:
        runs = {
            (seed, arm.name): measure(arm, splits, seed, one.epochs, out / "table2")
            for seed in numbers
            for arm in one.arms
        }
        found = {arm.name: [runs[seed, arm.name] for seed in numbers] for arm in one.arms}
        rows += [row(arm, found, one.control) for arm in one.arms]
    epochs = ", with crops and flips ".join(f"{one.epochs:g}" for one in protocols)
    return {
        "title": "Table 2: LeNet-5 on CIFAR-10",
        "source": "Neural lifting, section 5.1, Tables 2 and 5",
        "finding": finding(rows),
        "scale": f"plain epochs: {epochs}; the paper: 180 and 249",
        "seeds": list(numbers),
        "machine": machine(),
        "columns": [name for name in rows[0] if name != "per seed"],
        "rows": rows,
        "notes": [
            "Test accuracy in per cent of the weights that were best on validation data: for every arm the "
            "same 10,000 of the 50,000 training images. Under one augmentation all spend the same FLOPs.",
            "The last column is the paired difference to tuned plain training under the same augmentation.",
            "FLOPs do not show what normalization costs: benchmarks/lift_cost.py has the time of a step.",
        ],
    }


def row(arm: Entry, found: dict[str, list[Measured]], control: str) -> Row:
    """One line of the table."""
    runs = found[arm.name]
    tests = {name: [100 * one.test for one in some] for name, some in found.items()}
    return {
        "model": arm.name,
        "parameters": runs[0].params,
        "test accuracy": spread(tests[arm.name]),
        "paper": arm.paper,
        "cost": statistics.fmean(one.cost for one in runs),
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
