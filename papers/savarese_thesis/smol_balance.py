"""How much of a budget should go to precisions, how much to fine-tuning (thesis Figure 5.7)."""

from functools import partial
from pathlib import Path
from typing import Any

from papers.common.arms import Row
from papers.common.protocol import thinned
from papers.savarese_thesis.precision_runs import (
    Bench,
    as_record,
    digits,
    means,
    published,
    sgd,
    sized,
    under_one_schedule,
)
from torchlift.recipes import Smol


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
    stand_in: bool = False,
) -> Row:
    """SMOL at one strength with several parts of the budget for its noise; the rest fine-tunes."""
    full = not stand_in
    setting = published(data) if full else digits(40.0, **sgd(0.05, 1e-4, schedule="cosine"))
    setting = sized(setting, epochs, images, device)
    bench = Bench.at(setting, out, "smol-balance")
    # s moves by Adam's rate at every step: 1e-3 is enough in 650 epochs, not in 40 of digits
    make = (
        partial(Smol, strength=7e-7, where=setting.where)
        if full
        else partial(Smol, strength=1e-5, logit_rate=0.02)
    )
    wrapped = under_one_schedule if full else unchanged
    shares = [n / 13 for n in range(1, 13)] if full else [0.1, 0.25, 0.4, 0.55, 0.7, 0.85]
    shares = thinned(shares, setting.share)
    ways = {f"noise {share:.2f}": wrapped(make(finetune=1 - share)) for share in shares}
    rows = bench.runs(ways, seeds or 3)
    table = means(rows)
    curves = [
        {"name": key, "panel": key, "x": shares, "y": [row[key]["mean"] for row in table]}
        for key in ("accuracy", "bits")
    ]
    said = ", ".join(
        f"{share:.2f}: {100 * row['accuracy']['mean']:.1f} % at {row['bits']['mean']:.2f} bits"
        for share, row in zip(shares, table, strict=True)
    )
    return as_record(
        "Precision training against fine-tuning", "Figure 5.7", setting, full, rows,
        finding=f"Accuracy and bits by the part of the budget spent on noise: {said}.",
        curves=curves, x_label="part of the budget for precisions",
        notes=["The thesis: bits settle from 250 of 650 epochs on; beyond that more noise changes little."],
    )  # fmt: skip


def unchanged(recipe: Any) -> Any:
    """A recipe as it is: each of its stages goes through the schedule."""
    return recipe
