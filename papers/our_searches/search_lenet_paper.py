"""What was tried on LeNet-5 without augmentation (the paper's protocol): rates and weight decays."""

from pathlib import Path
from typing import Any

from papers.common.arms import Entry, Row, machine, tuned
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


def arms() -> list[Entry]:
    """SGD with momentum 0.9 and a cosine; the paper's dropout."""
    return [
        Entry(
            f"{name}, lr {lr:g}, decay {decay:g}", lenet.paper_model, Arm(recipe, **lenet.cosine(lr, decay))
        )
        for name, (recipe, settings) in TRIED.items()
        for lr, decay in settings
    ]


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
) -> Row:
    """Every setting on one seed; 25 plain epochs unless given."""
    del seeds, device
    length, splits = epochs or 25.0, few(load("cifar10", data), images)
    place = out / f"search-lenet-paper-{length:g}-{len(splits.train[0])}"
    found = tuned(arms(), splits, SEED, length, place)
    rows = [row for group in found.values() for row in group]
    best = (f"{group[0]['arm']} ({100 * group[0]['validation']:.2f} %)" for group in found.values())
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
