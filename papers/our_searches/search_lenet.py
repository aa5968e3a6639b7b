"""What was tried on LeNet-5 with crops and flips: exact lifts against plain training at several rates."""

from functools import partial
from pathlib import Path
from typing import Any

from papers.common.arms import Entry, Row, machine, tried
from papers.common.protocol import few
from papers.neural_lifting import lenet
from torchlift import Arm
from torchlift.data import Splits, crop_flip, load
from torchlift.lifts import Normalize, Standardize

FAST_EPOCHS = 4


def arms() -> list[Entry]:
    """The best plain rate of longer runs first."""
    choices: list[tuple[str, Any, tuple[float, ...]]] = [
        ("plain", None, (0.05,)),
        ("folded norm", Normalize("trunk*"), (0.1,)),
        ("centered", Standardize(), (0.05,)),
        ("plain", None, (0.03, 0.1)),
    ]
    return [arm(name, recipe, lr) for name, recipe, rates in choices for lr in rates]


def arm(name: str, recipe: Any, lr: float) -> Entry:
    """SGD with momentum, cosine, weight decay 5e-4."""
    settings: Row = {"augment": crop_flip} | lenet.cosine(lr)
    return Entry(f"{name}, lr {lr:g}", lenet.model, Arm(recipe, **settings))


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
) -> Row:
    """Every arm on ``seeds`` seeds; 4 plain epochs unless given."""
    del device
    numbers, length = range(seeds or 1), epochs or FAST_EPOCHS
    splits = few(load("cifar10", data), images)
    place = out / f"search-lenet-{length:g}-{len(splits.train[0])}"
    rows = tried(arms(), partial(same, splits), numbers, length, place)
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


def same(splits: Splits, seed: int) -> Splits:
    """One split for all seeds."""
    del seed
    return splits
