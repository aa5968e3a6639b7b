"""A hundred layers on shortest paths: which become alike (thesis Figure 3.12)."""

import dataclasses
from functools import partial
from pathlib import Path

from papers.common.arms import Row, machine
from papers.common.cells import Cells
from papers.savarese_thesis.shortest_paths import FULL, PHASES, sized, trained

LAYERS, EPOCHS, ALIKE = 100, 40, 0.9


def groups(similarity: list[list[float]]) -> list[int]:
    """Sizes of the groups of layers that are alike, the largest first: each joins its first like layer."""
    homes: list[int] = []
    for row in similarity:
        homes.append(next((home for home in dict.fromkeys(homes) if abs(row[home]) >= ALIKE), len(homes)))
    return sorted((homes.count(home) for home in set(homes)), reverse=True)


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
) -> Row:
    """The shared network with 100 convolutions through the phases, 40 epochs in all."""
    del data
    size = sized(dataclasses.replace(FULL, layers=LAYERS, epochs=EPOCHS), epochs, images, device)
    numbers = list(range(seeds or 1))
    cells = Cells(out / f"deep-paths-{size.epochs:g}-{size.samples}.jsonl")
    runs = cells.all({f"seed {seed}": partial(trained, "shared", seed, size) for seed in numbers})
    rows = [
        {
            "seed": one["seed"], "distance": phase["distance"], "F1": phase["f1"],
            "groups": groups(phase["similarity"])[:5],
        }
        for one in runs
        for phase in one["phases"]
    ]  # fmt: skip
    largest = [sum(groups(one["phases"][-1]["similarity"])[:2]) for one in runs]
    return {
        "title": "Figure 3.12: layers that become alike among a hundred",
        "source": "Savarese, Principled Approximation Methods, section 3.5, Figure 3.12",
        "finding": f"Layers in the two largest groups of like layers, seed by seed: {largest} of {LAYERS}.",
        "scale": f"{size.epochs / PHASES:g} epochs in each of five phases, "
        f"{size.samples} grids of {size.size} × {size.size}",
        "seeds": numbers, "machine": machine(), "columns": list(rows[0]), "rows": rows,
        "layers in the two largest groups": largest,
        "matrices": [
            {"name": f"distance {phase['distance']}", "values": phase["similarity"]}
            for phase in (runs[0]["phases"][0], runs[0]["phases"][-1])
        ],
    }  # fmt: skip
