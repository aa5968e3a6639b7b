"""What soft sharing did: which layers became alike, when, and what the folded network looks like."""

import math
from typing import Any

from torchlift.report.figures import Heatmap
from torchlift.report.loops import Loops
from torchlift.report.page import PageBlock
from torchlift.report.story.rows import PageData, Rows, spaced

COLUMNS = 12
"""Epochs shown at most."""


def sharing_blocks(history: Rows, summary: PageData) -> list[PageBlock]:
    """All there is to tell of shared weights; nothing for a run without layers that shared softly."""
    rows = [row for row in history if row.get("similarity")]
    if not rows:
        return []
    groups: dict[str, Any] = rows[-1]["similarity"]
    return [
        *(over_time(rows, group) for group in groups),
        *(final(group, matrix) for group, matrix in groups.items()),
        *loops(summary),
    ]


def over_time(rows: Rows, group: str) -> Heatmap:
    """How alike each layer is to the others of its group, at up to twelve epochs."""
    chosen = [rows[n] for n in spaced(len(rows), COLUMNS)]
    matrices = [row["similarity"][group] for row in chosen]
    layers = len(matrices[0])
    values = [[others(matrix, layer) for matrix in matrices] for layer in range(layers)]
    return Heatmap(
        [str(layer + 1) for layer in range(layers)],
        [str(row.get("epoch", "")) for row in chosen],
        values,
        "layer",
        "epoch",
        f"{group}: similarity over time",
        "Mean |cosine| of a layer's coefficients with those of the other layers.",
    )


def others(matrix: list[list[float]], layer: int) -> float:
    """The mean of a row without its diagonal."""
    return (math.fsum(matrix[layer]) - matrix[layer][layer]) / (len(matrix) - 1)


def final(group: str, matrix: list[list[float]]) -> Heatmap:
    """The similarity of every pair of layers at the end."""
    names = [str(layer + 1) for layer in range(len(matrix))]
    title = f"{group}: layers alike"
    return Heatmap(names, names, matrix, "layer", "layer", title, "|cosine| of coefficients, at the end.")


def loops(summary: PageData) -> list[PageBlock]:
    """The folded network: each stretch of layers in which a weight is used again."""
    route = [(str(layer), str(stored)) for layer, stored in summary.get("route") or []]
    stored = [weight for _, weight in route]
    drawn: list[PageBlock] = []
    for first, last in stretches(stored):
        names = list(dict.fromkeys(stored[first : last + 1]))
        path = [names.index(weight) for weight in stored[first : last + 1]]
        title = f"{last + 1 - first} layers, {len(names)} {'weight' if len(names) == 1 else 'weights'}"
        caption = "A circle is a stored weight, with its uses; arrows carry the numbers of the steps."
        drawn.append(Loops(names, path, title, caption))
    return drawn


def stretches(stored: list[str]) -> list[tuple[int, int]]:
    """Places from the first to the last use of weights used again; stretches that overlap are one."""
    result: list[tuple[int, int]] = []
    for weight in dict.fromkeys(stored):
        first, last = stored.index(weight), len(stored) - 1 - stored[::-1].index(weight)
        if last == first:
            continue
        if result and first <= result[-1][1]:
            first, last = result[-1][0], max(result.pop()[1], last)
        result.append((first, last))
    return result
