"""Precisions carry structure: retrained with SMOL's own, in place and shuffled (thesis Table 5.6)."""

from functools import partial
from pathlib import Path
from typing import Any

from papers.common.arms import Row, difference
from papers.savarese_thesis.precision_runs import (
    Bench,
    Fixed,
    as_record,
    grids,
    lenet,
    means,
    published,
    sized,
    under_one_schedule,
)
from torchlift.recipes import Smol

SAME, SHUFFLED = "same precisions, retrained", "shuffled precisions, retrained"
THESIS = {"SMOL": 92.8, SAME: 91.5, SHUFFLED: 89.3}


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
    stand_in: bool = False,
) -> Row:
    """SMOL with a precision per weight; then new weights, straight through, for half of its budget."""
    full = not stand_in
    setting = published(data) if full else lenet(10_000, 10.0, data)
    setting = sized(setting, epochs, images, device)
    thesis = Smol(strength=7e-7, where=setting.where, finetune=300 / 650)
    recipe = under_one_schedule(thesis) if full else Smol(bits=2.0)
    bench, retrained = Bench.at(setting, out, "shuffled-precisions"), 300 / 650 if full else 0.5
    rows, again = bench.runs({"SMOL": recipe}, seeds or 3), dict[str, Any]()
    for seed in range(seeds or 3):
        model = bench.model("SMOL", recipe, seed).model  # finished: it is only read
        for name, order in ((SAME, None), (SHUFFLED, seed + 1)):
            arm = setting.arm(Fixed(grids(model, order), setting.where), retrained)
            again[f"{name}, seed {seed}"] = partial(bench.measured, name, arm, seed)
    rows += bench.cells.all(again)
    table = {row["method"]: row for row in means(rows)}
    lost = difference(table[SHUFFLED]["per seed"], table[SAME]["per seed"])
    for name, row in table.items():
        row["thesis"] = THESIS[name] / 100
    said = ", ".join(f"{name} {100 * row['accuracy']['mean']:.1f} %" for name, row in table.items())
    return as_record(
        "Shuffled precisions", "Table 5.6 and Figure 5.8", setting, full, rows,
        finding=f"{said}; shuffling costs {-100 * lost['mean']:.1f} points "
        f"(95 %: {-100 * lost['high']:.1f} to {-100 * lost['low']:.1f}).",
        rows=list(table.values()), columns=["method", "bits", "file bytes", "accuracy", "thesis"],
        shuffling=lost,
    )  # fmt: skip
