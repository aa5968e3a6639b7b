"""Figure 6: batch norm keeps layers from acting linearly, and so from stalling."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from papers.common.arms import machine, spread
from papers.common.cells import Cells
from papers.embedding_principle.traces import SOURCE, gaussian, reached, sine, trained

GAMMAS: tuple[float | None, ...] = (None, 0.1, 1.0, 1.5)
EPOCHS, PER, LR, LEVEL = 60, 100, 0.02, 0.2


def network(gamma: float | None, seed: int, std: float = 0.1) -> nn.Module:
    """Two hidden layers of 50 tanh neurons, with batch norms whose γ starts at ``gamma``."""
    layers: list[nn.Module] = []
    for inputs in (1, 50):
        norm = [] if gamma is None else [nn.BatchNorm1d(50)]
        layers += [nn.Linear(inputs, 50), *norm, nn.Tanh()]
    model = gaussian(nn.Sequential(*layers, nn.Linear(50, 1)), std, seed)
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm1d) and gamma is not None:
            nn.init.constant_(layer.weight, gamma)
    return model


def trial(gamma: float | None, seed: int, epochs: int, device: str | None = None) -> dict[str, Any]:
    """One training: when it gets below half of what a constant leaves, and how linear its layers are."""
    data = sine()
    trace = trained(network(gamma, seed), data, LR, epochs, seed, per=PER, device=device)
    epoch = reached(trace.losses, LEVEL)
    first = [min(row) for row in trace.linearity[: max(1, epochs // 6)]]
    return {
        "epochs": epoch,
        "end": trace.losses[-1],
        "early": sum(first) / len(first),
        **trace.short(),
    }


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
) -> dict[str, Any]:
    """No batch norm, and γ = 0.1, 1, 1.5 at the start; 6,000 steps unless given."""
    del data, images  # the points are the experiment
    torch.set_num_threads(1)
    share, numbers = 1.0 if epochs is None else epochs / (EPOCHS * PER), range(seeds or 3)
    length = max(6, round(EPOCHS * share))
    cells = Cells(Path(out) / "depth_norms" / f"cells-{share:g}.jsonl")
    rows: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    for gamma in GAMMAS:
        trials = cells.all({f"{gamma}, {s}": partial(trial, gamma, s, length, device) for s in numbers})
        name = "no batch norm" if gamma is None else f"γ = {gamma:g}"
        done = [one["epochs"] for one in trials]
        rows.append(
            {
                "network": name,
                "linearity of the least linear layer, first sixth": spread([one["early"] for one in trials]),
                f"steps to a loss of {LEVEL:g}": [None if d is None else d * PER for d in done],
                "loss at the end": spread([one["end"] for one in trials]),
            }
        )
        losses = trials[0]["losses"]
        curves.append({"name": name, "x": list(range(1, len(losses) + 1)), "y": losses})
    early = [
        f"{row['network']} {row['linearity of the least linear layer, first sixth']['mean']:.3f}"
        for row in rows
    ]
    ends = [f"{row['network']} {row['loss at the end']['mean']:.2g}" for row in rows]
    return {
        "title": "Batch norm against linear layers",
        "source": f"{SOURCE}, Figure 6",
        "finding": f"linearity early in training: {', '.join(early)}; loss at the end: {', '.join(ends)}",
        "scale": f"{length * PER:,} full-batch steps, two hidden layers of 50 tanh, 70 points of a sine",
        "seeds": list(numbers),
        "machine": machine(),
        "columns": list(rows[0]),
        "rows": rows,
        "curves": curves,
        "x_label": "part of the training",
        "y_label": "training loss",
        "notes": [
            "Linearity is measured in evaluation mode, with the running statistics of the norms. An entry "
            "of None: "
            "the level was not reached."
        ],
    }
