"""Lifted networks, Table 1 and Figure 1: lifted weights as initialization on MNIST, five nets, two rates."""

import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from papers.common.arms import machine
from papers.common.mnist_mlp import Pair, descend, digits, mlp, spread
from torchlift import lifted
from torchlift.methods.lifted.data import metric

NETS: dict[tuple[int, ...], dict[str, tuple[float, float]]] = {
    (300,): {
        "normal": (0.915, 0.800),
        "xavier": (0.923, 0.836),
        "scale": (0.924, 0.844),
        "lifted": (0.962, 0.875),
    },
    (300, 100): {
        "normal": (0.919, 0.792),
        "xavier": (0.932, 0.838),
        "scale": (0.931, 0.842),
        "lifted": (0.969, 0.899),
    },
    (500, 150): {
        "normal": (0.927, 0.824),
        "xavier": (0.936, 0.850),
        "scale": (0.935, 0.858),
        "lifted": (0.970, 0.890),
    },
    (500, 200, 100): {
        "normal": (0.927, 0.821),
        "xavier": (0.939, 0.857),
        "scale": (0.935, 0.848),
        "lifted": (0.958, 0.926),
    },
    (400, 200, 100, 50): {
        "normal": (0.919, 0.751),
        "xavier": (0.938, 0.838),
        "scale": (0.936, 0.815),
        "lifted": (0.919, 0.959),
    },
}
RATES = (1e-5, 1e-6)


def run(
    out: Path, data: str | None = None, seeds: int | None = None, scale: float | None = None
) -> dict[str, Any]:
    """All nets, rates and initializations; ``scale`` 1 is 60,000 images and 17 epochs, 0.1 unless given.

    Smaller scales keep the number of images per epoch times epochs in proportion: images × scale, 17 epochs.
    """
    del out
    part = scale or 0.1
    train, test = digits(data, round(60_000 * part), 10_000 if part >= 0.5 else 2_000)
    nets = NETS if part >= 0.05 else dict(list(NETS.items())[:2])
    rows: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    for hidden, paper in nets.items():
        for init in paper:
            results = [trial(hidden, init, train, test, seed) for seed in range(seeds or 1)]
            rows += [row(hidden, init, rate, paper[init][i], results) for i, rate in enumerate(RATES)]
            curve = results[0]["curves"][RATES[0]]
            curves.append(
                {
                    "name": f"{'-'.join(map(str, hidden))}, {init}",
                    "x": list(range(1, len(curve) + 1)),
                    "y": curve,
                }
            )
    return {
        "title": "Lifted initialization on MNIST",
        "source": "Askari et al., Lifted Neural Networks, Table 1 and Figure 1",
        "finding": finding(rows),
        "scale": f"{len(train[0])} training and {len(test[0])} test images, 17 epochs of batches of 100",
        "seeds": list(range(seeds or 1)),
        "machine": machine(),
        "columns": list(rows[0]),
        "rows": rows,
        "curves": curves,
        "x_label": "epoch",
        "y_label": "test accuracy",
        "notes": [
            "The published baselines behave like Adam at these rates, not like plain gradient descent.",
            "Our lifted weights come from the Bregman penalty (ISGM), the paper's from the classical one.",
            "Pre-training seconds are in the column 'lifting'; the paper does not count them.",
        ],
    }


def trial(hidden: tuple[int, ...], init: str, train: Pair, test: Pair, seed: int) -> dict[str, Any]:
    """One seed: the initialization (pre-trained if lifted), then Adam at both rates from it."""
    model = mlp((784, *hidden, 10), "xavier" if init == "lifted" else init, seed)
    start = time.perf_counter()
    if init == "lifted":
        options: dict[str, Any] = {"mu": 3.0, "tau": 5.0, "rounds": 1, "inner": 8, "schedule": "linear"}
        lifted.train(model, train, epochs=5, seed=seed, progress=False, **options)
    seconds = time.perf_counter() - start
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    alone = metric(model, test)
    curves: dict[float, list[float]] = {}
    for rate in RATES:
        model.load_state_dict(weights)
        optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
        curves[rate] = descend(model, train, test, optimizer, 17, nn.CrossEntropyLoss())
    return {"curves": curves, "alone": alone, "seconds": seconds}


def row(
    hidden: tuple[int, ...], init: str, rate: float, paper: float, results: list[dict[str, Any]]
) -> dict[str, Any]:
    """One cell of the table."""
    found = spread([result["curves"][rate][-1] for result in results])
    return {
        "hidden": "-".join(map(str, hidden)),
        "init": init,
        "rate": rate,
        "mean": found["mean"],
        "sd": found["sd"],
        "paper": paper,
        "before training": spread([result["alone"] for result in results])["mean"],
        "lifting": spread([result["seconds"] for result in results])["mean"],
    }


def finding(rows: list[dict[str, Any]]) -> str:
    """Where the lifted initialization ends above Xavier's."""
    cells = {(r["hidden"], r["rate"], r["init"]): r["mean"] for r in rows}
    pairs = [
        (cells[net, rate, "lifted"], cells[net, rate, "xavier"]) for net, rate, i in cells if i == "xavier"
    ]
    wins = sum(a > b for a, b in pairs)
    gain = sum(a - b for a, b in pairs) / len(pairs)
    return (
        f"lifted initialization ends above Xavier's in {wins} of {len(pairs)} cells, by {gain:.3f} on average"
    )
