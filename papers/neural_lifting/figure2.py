"""Neural lifting, Figure 2: accuracy and loss through the three phases, and what each phase gave."""

from functools import partial
from pathlib import Path
from typing import Any

from papers.common.arms import Entry, MeasuredRun, Row, machine, measure, spread
from papers.common.protocol import few
from papers.neural_lifting import lenet
from torchlift.analyze import cycles
from torchlift.data import Splits, load
from torchlift.experiments.executors import run_all


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
) -> Row:
    """The runs of Algorithm 2 of Table 2: 249 epochs unless given."""
    arm, length = dense(epochs)
    title, source = "Figure 2: the dynamics of neural lifting", "section 5.1, Figure 2"
    splits = few(load("cifar10", data), images)
    folder = out / f"table2-{length:g}-{len(splits.train[0])}"
    return traced(title, source, arm, length, folder, splits, seeds, device)


def dense(epochs: float | None) -> tuple[Entry, float]:
    """Table 2's arm with a lifter of dense layers, and its epochs."""
    contest = lenet.contests(epochs)[0]
    return next(arm for arm in contest.arms if arm.name == lenet.LIFTING), contest.epochs


def traced(
    title: str, source: str, arm: Entry, epochs: float, out: Path, splits: Splits, seeds: int | None,
    device: str | None,
) -> Row:  # fmt: skip
    """Curves of every seed, and a, b of eqs. 8 and 9 for every cycle."""
    numbers = range(seeds or 1)
    work = partial(one_seed, arm, splits=splits, epochs=epochs, out=out, device=device)
    runs = dict(zip(numbers, run_all(work, numbers), strict=True))
    rows = [
        {
            "seed": seed,
            "cycle": number,
            "loss, base": one.base,
            "lifted": one.lifted,
            "projected": one.projected,
        }
        | {"a (gain)": one.a, "b (price)": one.b, "a − b": one.gain}
        for seed, result in runs.items()
        for number, one in enumerate(cycles(result.history), start=1)
    ]
    accuracy = {seed: 100 * result.test for seed, result in runs.items()}
    shown = ", ".join(f"{value:.2f}" for value in accuracy.values())
    return {
        "title": title,
        "source": f"Neural lifting, {source}",
        "finding": f"Test accuracy {shown} % (paper {arm.paper} %); lifting pays if a > b.",
        "scale": f"{epochs:g} plain epochs of {len(splits.train[0]):,} images",
        "seeds": list(numbers),
        "machine": machine(),
        "test accuracy": spread(list(accuracy.values())),
        "columns": list(rows[0]) if rows else [],
        "rows": rows,
        "curves": [line for seed, result in runs.items() for line in curves(seed, result.history)],
        "x_label": "cost in plain epochs",
    }


def one_seed(
    arm: Entry, seed: int, splits: Splits, epochs: float, out: Path, device: str | None
) -> MeasuredRun:
    """An arm on a seed."""
    return measure(arm, splits, seed, epochs, out, device)


def curves(seed: int, history: list[Row]) -> list[dict[str, Any]]:
    """Validation accuracy and loss against cost, one line per phase."""
    panels = {"validation accuracy": "metric", "validation loss": "valid_loss"}
    fits = sorted({row["fit"] for row in history})
    lines: list[dict[str, Any]] = []
    for panel, column in panels.items():
        for fit in fits:
            rows = [row for row in history if row["fit"] == fit]
            name = f"{rows[0]['phase']} {fit // 3 + 1}, seed {seed}"
            line = {"x": [row["cost"] for row in rows], "y": [row[column] for row in rows]}
            lines.append({"name": name, "panel": panel} | line)
    return lines
