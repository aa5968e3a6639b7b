"""Neural lifting, Figure 3: the teachers as functions of each input, and how rough they are."""

from pathlib import Path

import torch

from papers.common.arms import Row, machine, spread
from torchlift.data.synthetic import random_teacher

BLOCKS, INPUTS, POINTS, AT = (7, 8, 9), 5, 201, 0.5
TEACHERS = 30


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
) -> Row:
    """Each input from 0 to 1, the others at 1/2; nothing is trained, ``images`` are points of a curve."""
    del out, data, epochs
    numbers, points = range(seeds or TEACHERS), max(5, images or POINTS)
    x = torch.linspace(0, 1, points, dtype=torch.float64)
    lines = torch.full((INPUTS, points, INPUTS), AT, dtype=torch.float64)
    for index in range(INPUTS):
        lines[index, :, index] = x
    rows: list[Row] = []
    curves: list[Row] = []
    for blocks in BLOCKS:
        values = [curve(blocks, seed, lines) for seed in numbers]
        rows.append({"teacher": blocks, "roughness": spread([float(bends(y)) for y in values])})
        curves += [
            {"name": f"input {index + 1}", "panel": f"{blocks} blocks", "x": x.tolist(), "y": y.tolist()}
            for index, y in enumerate(values[0])
        ]
    means = ", ".join(f"{row['teacher']} blocks {row['roughness']['mean']:.3g}" for row in rows)
    return {
        "title": "Figure 3: teachers along each input",
        "source": "Neural lifting, appendix B.2, Figure 3",
        "finding": f"Mean absolute second derivative along an input, values in [0, 1]: {means}.",
        "scale": f"{points} points of each input, the others at {AT}; {len(numbers)} teachers of each depth",
        "seeds": list(numbers),
        "machine": machine(),
        "columns": list(rows[0]),
        "rows": rows,
        "curves": curves,
        "x_label": "the input",
        "notes": ["Values are brought to [0, 1] by the least and the largest along all five inputs."],
    }


def curve(blocks: int, seed: int, lines: torch.Tensor) -> torch.Tensor:
    """A teacher along each input, inputs × points, in [0, 1]."""
    y = random_teacher(blocks, seed)(lines.flatten(0, 1)).view(lines.shape[:2])
    return (y - y.min()) / (y.max() - y.min())


def bends(y: torch.Tensor) -> torch.Tensor:
    """The mean of |y''| over points and inputs."""
    step = 1 / (y.shape[1] - 1)
    return (y[:, 2:] - 2 * y[:, 1:-1] + y[:, :-2]).abs().mean() / step**2
