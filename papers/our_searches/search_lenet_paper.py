"""What was tried on LeNet-5 without augmentation (the paper's protocol): rates and weight decays."""

from pathlib import Path
from typing import Any

import torchlift as tl
from papers.common.arms import Row, machine, table
from papers.common.protocol import few
from papers.neural_lifting import lenet
from torchlift import Arm
from torchlift.data import load
from torchlift.lifts import Normalize

SEED = 100
"""None of Table 2's."""

TRIED: dict[str, tuple[Any, tuple[tuple[float, float], ...]]] = {
    "plain": (
        None,
        ((0.02, 5e-4), (0.02, 2e-3), (0.05, 2e-3), (0.01, 5e-3), (0.02, 5e-3), (0.05, 5e-3), (0.02, 1e-2)),
    ),
    "folded norm": (
        Normalize("trunk*"),
        ((0.05, 5e-4), (0.05, 2e-3), (0.1, 2e-3), (0.05, 5e-3), (0.1, 5e-3)),
    ),
}
"""Rate and weight decay; plain training has more trials."""


def arms() -> dict[str, Arm]:
    """SGD with momentum 0.9 and a cosine; the paper's dropout."""
    return {
        f"{name}, lr {lr:g}, decay {decay:g}": Arm(recipe, **lenet.cosine(lr, decay))
        for name, (recipe, settings) in TRIED.items()
        for lr, decay in settings
    }


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
) -> Row:
    """Every setting on one seed; 25 plain epochs unless given."""
    del seeds
    length, splits = epochs or 25.0, few(load("cifar10", data), images)
    folder = out / f"search-lenet-paper-{length:g}-{len(splits.train[0])}"
    first, *others = (by_name := arms())
    comparison = tl.compare(
        lenet.paper_model, splits,
        recipes={"plain": by_name[first]} | {name: by_name[name] for name in others},
        seeds=[SEED], budget=length, out=folder, resume=True, progress=False,
    )  # fmt: skip
    rows = [{key: row[key] for key in ("arm", "validation", "test loss")} for row in table(comparison, first)]
    rows.sort(key=lambda row: -row["validation"]["mean"])
    tops = [next(row for row in rows if row["arm"].startswith(name)) for name in TRIED]
    best = (f"{row['arm']} ({100 * row['validation']['mean']:.2f} %)" for row in tops)
    return {
        "title": "Tried on LeNet-5 without augmentation",
        "source": "our own search",
        "finding": "best on validation data: " + "; ".join(best),
        "scale": f"{length:g} plain epochs for every arm",
        "seeds": [SEED],
        "machine": machine(),
        "columns": list(rows[0]),
        "rows": rows,
        "notes": ["Table 2 takes the best of each without augmentation; the seed is none of its seeds."],
    }
