"""What was tried on LeNet-5 with crops and flips: exact lifts against plain training at several rates."""

import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from torchlift.bench.reproduce import lenet
from torchlift.bench.reproduce.arms import Arm, Row, machine, tried
from torchlift.data import Splits, crop_flip, load
from torchlift.recipes import Centred, FoldedNorm

FAST_EPOCHS = 4
DECAYS = (5e-4, 1e-4)
AUGMENTED = {"plain": (0.05, 0.03, 0.1), "folded norm": (0.1, 0.05, 0.2), "centred": (0.05,)}
UNCHANGED = {"plain": (0.02, 0.01, 0.05), "folded norm": (0.02, 0.05, 0.1)}
RECIPES = {"plain": None, "folded norm": FoldedNorm("trunk*"), "centred": Centred()}


def arms() -> list[Arm]:
    """Every rate and weight decay; with crops and flips first, then the paper's protocol."""
    return [arm(augment, *setting) for augment in (True, False) for setting in grid(augment)]


def grid(augment: bool) -> Iterator[tuple[str, float, float]]:
    """The settings tried: recipe, rate and weight decay; the best plain ones of earlier runs first."""
    rates = AUGMENTED if augment else UNCHANGED
    for name, decay in itertools.product(rates, DECAYS):
        for rate in rates[name]:
            yield name, rate, decay


def arm(augment: bool, name: str, lr: float, decay: float) -> Arm:
    """SGD with momentum 0.9, cosine; without augmentation with the paper's dropout."""
    settings: Row = {"schedule": "cosine", "optimizer": lenet.sgd(lr, 0.9, decay)}
    settings |= {"augment": crop_flip} if augment else {}
    model = lenet.model if augment else lenet.paper_model
    told = f"{name}, lr {lr:g}, decay {decay:g}" + ("" if augment else ", not augmented")
    return Arm(told, model, RECIPES[name], settings)


def run(out: Path, data: str | None = None, seeds: int | None = None, scale: float | None = None) -> Row:
    """Every arm on ``seeds`` seeds; ``scale`` 1 is 60 plain epochs, 4 unless given."""
    numbers, epochs = range(seeds or 1), FAST_EPOCHS if scale is None else scale * lenet.FAST_EPOCHS
    splits = load("cifar10", data)
    rows = tried(arms(), partial(same, splits), numbers, epochs, out / f"search-lenet-{epochs:g}")
    order = sorted(rows, key=lambda row: -row["validation"]["mean"])
    plain = next(row for row in order if row["arm"].startswith("plain"))
    shown = f"{order[0]['arm']} {100 * order[0]['test']['mean']:.2f} %"
    return {
        "title": "Tried on LeNet-5 with crops and flips",
        "source": "our own search",
        "finding": f"best on validation: {shown}; plain: {plain['arm']} {100 * plain['test']['mean']:.2f} %",
        "scale": f"{epochs:g} plain epochs for every arm",
        "seeds": list(numbers),
        "machine": machine(),
        "columns": [name for name in rows[0] if name != "per seed"],
        "rows": rows,
    }


def same(splits: Splits, seed: int) -> Splits:
    """One split for all seeds."""
    del seed
    return splits
