"""What decides the accuracy of the lifted model alone: λ, sweeps, ρ and the start."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

from papers.common.arms import machine
from papers.common.cells import Cells
from papers.common.mnist_mlp import Pair, digits, mlp, spread
from papers.lifted_networks.lifted_model import PAPER, RHO, SWEEPS, block_descent
from torchlift.methods.lifted.data import metric

NETS = ((300, 100),)
BASE = {"lambda": 0.1, "sweeps": SWEEPS, "rho": RHO, "start": "xavier", "images": 50_000}
CHANGES: tuple[dict[str, Any], ...] = (
    {},
    {"sweeps": 2},
    {"sweeps": 16},
    {"lambda": 0.01},
    {"lambda": 0.3},
    {"lambda": 1.0},
    {"rho": 1e-4},
    {"rho": 1e-2},
    {"start": "normal"},
    {"start": "scale"},
    {"start": "normal", "lambda": 0.3},
    {"start": "normal", "lambda": 1.0},
)
"""What differs from the base."""


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
) -> dict[str, Any]:
    """Block descent with a setting or two changed, judged on 10,000 training digits held out."""
    del epochs
    torch.set_num_threads(1)
    train, _ = digits(data, 60_000, 10)
    validation = train[0][-10_000:], train[1][-10_000:]
    base = BASE | ({} if images is None else {"images": images})
    cells, numbers = Cells(Path(out) / "lifted_settings.jsonl"), range(seeds or 2)
    rows: list[dict[str, Any]] = []
    for net in NETS:
        for change in CHANGES:
            setting = base | change
            key = f"{net} {setting}"
            make = partial(trial, net, setting, train, validation)
            runs = cells.all({f"{key} {seed}": partial(make, seed) for seed in numbers})
            rows.append(
                {
                    "hidden": "-".join(map(str, net)),
                    "changed": described(change) or "nothing",
                    "accuracy": spread([one["score"] for one in runs]),
                    "CPU seconds": spread([one["seconds"] for one in runs])["mean"],
                }
            )
    return {
        "title": "What decides the accuracy of the lifted model alone",
        "source": "Askari et al., Lifted Neural Networks, Table 1; settings that it does not print",
        "finding": finding(rows),
        "scale": f"10,000 held-out training digits; unless changed: {described(base)}",
        "seeds": list(numbers),
        "machine": machine(),
        "columns": list(rows[0]),
        "rows": rows,
    }


def trial(
    net: tuple[int, ...], setting: dict[str, Any], train: Pair, validation: Pair, seed: int
) -> dict[str, Any]:
    """One descent."""
    some = train[0][: setting["images"]], train[1][: setting["images"]]
    model, start = mlp((784, *net, 10), setting["start"], seed), time.process_time()
    block_descent(model, setting["lambda"], some, setting["sweeps"], setting["rho"])
    return {"seconds": time.process_time() - start, "score": metric(model, validation)}


def described(setting: dict[str, Any]) -> str:
    """Settings in words."""
    return ", ".join(f"{name} {value}" for name, value in setting.items())


def finding(rows: list[dict[str, Any]]) -> str:
    """For each net its accuracy, and every change from the best to the worst."""
    words: list[str] = []
    for net in NETS:
        name = "-".join(map(str, net))
        first, *rest = [row for row in rows if row["hidden"] == name]
        ranked = sorted(rest, key=lambda row: -row["accuracy"]["mean"])
        changes = ", ".join(f"{row['changed']} {row['accuracy']['mean']:.3f}" for row in ranked)
        words.append(f"{name} (paper {PAPER[net]['model'][0]}): {first['accuracy']['mean']:.3f}; {changes}")
    return ". ".join(words)
