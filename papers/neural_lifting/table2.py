"""Neural lifting, Table 2: LeNet-5 on CIFAR-10 with a lifter, without, and with its schedule alone."""

import dataclasses
import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from papers.common.arms import (
    Entry,
    MeasuredRun,
    Row,
    difference,
    machine,
    measure,
    selected_arms,
    spread,
    without_arms,
)
from papers.common.protocol import few
from papers.neural_lifting import lenet
from papers.neural_lifting.lenet import Contest
from torchlift.data import Splits, load
from torchlift.experiments.executors import run_all

SEEDS = 5


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
    as_published: bool = False,
    arms: str | None = None,
) -> Row:
    """All arms, the paper's three or some, on all seeds at the cost of neural lifting's 249 epochs."""
    splits, numbers, contests = (
        few(load("cifar10", data), images),
        range(seeds or SEEDS),
        lenet.contests(epochs, large=True),
    )
    folder = out / f"table2-{contests[0].epochs:g}-{len(splits.train[0])}"
    if as_published:
        contests = [dataclasses.replace(contests[0], arms=contests[0].arms[:3])]
    names = [arm.name for one in contests for arm in one.arms]
    contests = narrowed(contests, arms)
    rows: list[Row] = []
    for one in contests:
        work = partial(one_run, splits=splits, epochs=one.epochs, out=folder, device=device)
        runs = iter(run_all(work, [(arm, seed) for arm in one.arms for seed in numbers]))
        by_arm = {arm.name: [next(runs) for _ in numbers] for arm in one.arms}
        rows += [row(arm, by_arm, one.control) for arm in one.arms]
    return {
        "title": "Table 2: LeNet-5 on CIFAR-10",
        "source": "Neural lifting, section 5.1, Tables 2 and 5",
        "finding": finding(rows),
        "scale": f"{contests[0].epochs:g} plain epochs of {len(splits.train[0]):,} images; "
        "the paper: 180 and 249 of 40,000",
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
    } | without_arms(names, [row["model"] for row in rows])


def narrowed(contests: Sequence[Contest], globs: str | None) -> list[Contest]:
    """The contests with the arms that are asked for, where any are left."""
    kept = selected_arms((arm.name for one in contests for arm in one.arms), globs)
    narrow = (
        dataclasses.replace(one, arms=[arm for arm in one.arms if arm.name in kept]) for one in contests
    )
    return [one for one in narrow if one.arms]


def one_run(
    job: tuple[Entry, int], *, splits: Splits, epochs: float, out: Path, device: str | None
) -> MeasuredRun:
    """An arm on a seed."""
    arm, seed = job
    return measure(arm, splits, seed, epochs, out, device)


def row(arm: Entry, by_arm: dict[str, list[MeasuredRun]], control: str) -> Row:
    """One line of the table."""
    runs = by_arm[arm.name]
    tests = {name: [100 * one.test for one in some] for name, some in by_arm.items()}
    beaten = arm.name != control and control in tests
    gap = difference(tests[arm.name], tests[control]) if beaten else None
    return {
        "model": arm.name,
        "parameters": runs[0].params,
        "test accuracy": spread(tests[arm.name]),
        "paper": arm.paper,
        "cost": statistics.fmean(one.cost for one in runs),
        "to tuned plain": gap,
        "per seed": tests[arm.name],
    }


def finding(rows: list[Row]) -> str:
    """The table in a sentence."""
    by_name = {row["model"]: row for row in rows}

    def phrase(name: str) -> str:
        gap = by_name[name]["to tuned plain"]
        if gap is None:
            return f"{name} {by_name[name]['test accuracy']['mean']:.2f} %"
        interval = f"{gap['mean']:+.2f} [{gap['low']:+.2f}, {gap['high']:+.2f}]"
        return f"{name} {by_name[name]['test accuracy']['mean']:.2f} % ({interval} to tuned plain)"

    names = ("SGD", lenet.LIFTING, lenet.SCHEDULE, lenet.OURS, f"{lenet.OURS}, crops and flips")
    return "; ".join(phrase(name) for name in names if name in by_name) + "."
