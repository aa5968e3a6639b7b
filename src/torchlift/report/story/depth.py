"""How linear layers are, and how alike their neighbors, over the epochs: maps of layers."""

import math

from torchlift.report.figures import Chart, Heatmap, Line
from torchlift.report.page import PageBlock
from torchlift.report.story.rows import COST, Rows, curve, finite_or_nan, phases, spaced, wants_log

COLUMNS = 16
MAPS = {
    "linearity": (
        "Linearity of layers",
        "The least |ρ| between a neuron's input and output: 1 acts linearly.",
    ),
    "cka": ("Alignment of layers", "Linear CKA of each layer's output with that of the layer before it."),
}


def depth_blocks(history: Rows) -> list[PageBlock]:
    """The maps of what was logged, the losses beside the linearity; nothing for runs that logged neither."""
    maps = [heat for kind in MAPS if (heat := heat_map(history, kind)) is not None]
    return [*side_by_side(history), *maps] if maps else []


def heat_map(history: Rows, kind: str) -> Heatmap | None:
    """Layers × epochs, at most sixteen of these, evenly spaced."""
    keys = dict.fromkeys(key for row in history for key in row if key.startswith(f"{kind} "))
    rows = [row for row in history if any(key in row for key in keys)]
    if not rows:
        return None
    shown = [rows[n] for n in spaced(len(rows), COLUMNS)]
    title, caption = MAPS[kind]
    values = [[finite_or_nan(row.get(key)) for row in shown] for key in keys]
    names = [key.removeprefix(f"{kind} ") for key in keys]
    columns = [f"{finite_or_nan(row.get('cost')):.3g}" for row in shown]
    return Heatmap(names, columns, values, "layer", COST, title, caption)


def side_by_side(history: Rows) -> list[PageBlock]:
    """Plateaus and linearity over the same axis: the loss in one chart, that of layers in the next."""
    keys = dict.fromkeys(key for row in history for key in row if key.startswith("linearity "))
    lines = [curve(history, key, key.removeprefix("linearity ")) for key in keys]
    drawn: list[Line] = [line for line in lines if line is not None and any(map(math.isfinite, line.y))]
    loss = curve(history, "train_loss", "train")
    if not drawn or loss is None:
        return []
    shaded = phases(history)
    return [
        Chart([loss], "Loss: plateaus", COST, "loss", shaded, log_y=wants_log([loss])),
        Chart(drawn, "Linearity", COST, "least |ρ|", shaded),
    ]
