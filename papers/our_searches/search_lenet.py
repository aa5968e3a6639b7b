"""What was tried on LeNet-5 with crops and flips: exact lifts against plain training at several rates."""

from pathlib import Path
from typing import Any

import torchlift as tl
from papers.common.arms import Row, machine, table
from papers.common.protocol import few
from papers.neural_lifting import lenet
from torchlift import Arm
from torchlift.data import crop_flip, load
from torchlift.lifts import Normalize, Standardize

FAST_EPOCHS = 4


def arms() -> dict[str, Arm]:
    """SGD with momentum, cosine, weight decay 5e-4; the best plain rate of longer runs first."""
    choices: list[tuple[str, Any, tuple[float, ...]]] = [
        ("plain", None, (0.05,)),
        ("folded norm", Normalize("trunk*"), (0.1,)),
        ("centered", Standardize(), (0.05,)),
        ("plain", None, (0.03, 0.1)),
    ]
    return {
        f"{name}, lr {lr:g}": Arm(recipe, augment=crop_flip, **lenet.cosine(lr))
        for name, recipe, rates in choices
        for lr in rates
    }


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
) -> Row:
    """Every arm on ``seeds`` seeds; 4 plain epochs unless given."""
    numbers, length = range(seeds or 1), epochs or FAST_EPOCHS
    splits = few(load("cifar10", data), images)
    folder = out / f"search-lenet-{length:g}-{len(splits.train[0])}"
    first, *others = (by_name := arms())
    recipes = {"plain": by_name[first]} | {name: by_name[name] for name in others}
    compared = tl.compare(
        lenet.model,
        splits,
        recipes=recipes,
        seeds=numbers,
        budget=length,
        out=folder,
        resume=True,
        progress=False,
    )
    rows = table(compared, first)
    order = sorted(rows, key=lambda row: -row["validation"]["mean"])
    plain = next(row for row in order if row["arm"].startswith("plain"))
    shown = f"{order[0]['arm']} {100 * order[0]['test']['mean']:.2f} %"
    return {
        "title": "Tried on LeNet-5 with crops and flips",
        "source": "our own search",
        "finding": f"best on validation: {shown}; plain: {plain['arm']} {100 * plain['test']['mean']:.2f} %",
        "scale": f"{length:g} plain epochs for every arm",
        "seeds": list(numbers),
        "machine": machine(),
        "columns": [name for name in rows[0] if name != "per seed"],
        "rows": rows,
    }
