"""Figure 7: more data makes layers bend, and a network leaves its plateau sooner."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import torchlift as tl
from papers.common.arms import machine
from papers.common.cells import Cells
from papers.embedding_principle.traces import SOURCE, Pair, gaussian, jump, reached, trained

SIZES = (70, 80, 100)
KEY = "steps until the loss has fallen by a fifth"
BEFORE, AFTER, PER, LR = 12, 40, 100, 0.05
TARGETS: dict[str, Callable[[Tensor], Tensor]] = {"a sine": lambda x: torch.sin(3 * x), "two steps": jump}


def sampled(n: int, target: str) -> Pair:
    """n points 4/69 apart around 0: more data reach further out."""
    x = (torch.arange(n, dtype=torch.float32) - (n - 1) / 2).unsqueeze(1) * 4 / 69
    return x, TARGETS[target](x)


def trial(target: str, seed: int, share: float, device: str | None = None) -> dict[str, Any]:
    """To the plateau on 70 points, then on with each size: the linearity after the switch, and the escape."""
    before, after = max(2, round(BEFORE * share)), max(2, round(AFTER * share))
    model = gaussian(tl.models.MLP(1, 50, 50, 50, 1, activation=nn.Tanh), 0.1, seed)
    first = trained(model, sampled(70, target), LR, before, seed, per=PER, device=device)
    result: dict[str, Any] = {"plateau": first.losses[-1], "linearity": first.linearity[-1]}
    for size in SIZES:
        trace = trained(first.model, sampled(size, target), LR, after, seed, per=PER, device=device)
        lost = reached(trace.losses, 0.8 * trace.losses[0])
        result[str(size)] = {
            "just after": trace.linearity[0],
            "escape": lost,
            "end": trace.losses[-1],
            **trace.short(),
        }
    return result


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
) -> dict[str, Any]:
    """Three hidden layers of 50 tanh neurons; 1,200 steps before the switch, ``epochs`` steps after it."""
    del data, images  # the points are the experiment
    torch.set_num_threads(1)
    share, numbers = 1.0 if epochs is None else epochs / 4_000, range(seeds or 3)
    cells = Cells(Path(out) / "depth_data" / f"cells-{share:g}.jsonl")
    rows: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    stalled: list[str] = []
    for target in TARGETS:
        trials = cells.all({f"{target}, {s}": partial(trial, target, s, share, device) for s in numbers})
        stalled.append(f"{target} " + ", ".join(f"{one['plateau']:.4g}" for one in trials))
        for size in SIZES:
            mine = [one[str(size)] for one in trials]
            escapes = [one["escape"] for one in mine]
            rows.append(
                {
                    "target": target,
                    "points after the switch": size,
                    "least linearity just after": [round(min(one["just after"]), 4) for one in mine],
                    KEY: [None if e is None else e * PER for e in escapes],
                    "loss at the end": [float(f"{one['end']:.3g}") for one in mine],
                }
            )
            losses = mine[0]["losses"]
            ticks = list(range(1, len(losses) + 1))
            curves.append({"name": f"{size} points", "panel": target, "x": ticks, "y": losses})
    return {
        "title": "More data, sooner off the plateau?",
        "source": f"{SOURCE}, Figure 7",
        "finding": "steps until the loss has fallen by a fifth, seed by seed: "
        + "; ".join(f"{row['target']}, {row['points after the switch']} points {row[KEY]}" for row in rows),
        "scale": f"{share:g} of 1,200 steps before and 4,000 after the switch, "
        "three hidden layers of 50 tanh",
        "seeds": list(numbers),
        "machine": machine(),
        "columns": list(rows[0]),
        "rows": rows,
        "curves": curves,
        "x_label": "part of the training after the switch",
        "y_label": "training loss",
        "notes": [
            "The points keep their distance, so that more of them show more of the target; what the paper's "
            "curve does further out is not published. None: the loss did not fall so far. Loss at the "
            f"switch: {'; '.join(stalled)}."
        ],
    }
