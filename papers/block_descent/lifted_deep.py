"""Ten hidden layers from small weights: where SGD stays at chance, beside block descent."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from papers.common.arms import machine
from papers.common.mnist_mlp import Pair, descend, digits, mlp, spread
from torchlift import lifted

PAPER = {"SGD": 0.1135, "three-splitting": 0.866}


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    stand_in: bool = False,
) -> dict[str, Any]:
    """SGD, Adam, three-splitting and ISGM: 60,000 images, 600 units, 300 sweeps; ``epochs`` are sweeps.

    The stand-in: 1,800 images, 100 units, 100 sweeps.

    Narrower networks start from weights that pass on as much of the signal per layer as 0.01 does with 600
    units, and the proximal weight on the weights (1 in the source) goes down with the number of images.
    """
    del out
    width, sweeps, count, test_count = (100, 100, 1_800, 2_000) if stand_in else (600, 300, 60_000, 10_000)
    share = (epochs or sweeps) / sweeps
    train, test = digits(data, images or count, min(test_count, images or test_count))
    lengths = {
        name: max(1, round(share * own)) for name, own in (("steps", 30), ("sweeps", sweeps), ("ISGM", 10))
    }
    sizes = (784, *[width] * 10, 10)
    by_method: dict[str, list[list[float]]] = {}
    for seed in range(seeds or 1):
        for name, curve in trial(sizes, train, test, seed, lengths).items():
            by_method.setdefault(name, []).append(curve)
    rows = [
        {"method": name, "paper": PAPER.get(name), **spread([c[-1] for c in curves])}
        for name, curves in by_method.items()
    ]
    return {
        "title": f"784-(10 x {width})-10 on MNIST from small weights",
        "source": "Lau, Zeng et al., block coordinate descent for DNNs (notebooks); numbers as printed there",
        "finding": "; ".join(f"{one['method']} ends at {one['mean']:.3f}" for one in rows),
        "scale": f"{len(train[0])} training and {len(test[0])} test images, width {width}, "
        f"{lengths['sweeps']} sweeps",
        "stand_in": stand_in,
        "seeds": list(range(seeds or 1)),
        "machine": machine(),
        "columns": ["method", "mean", "sd", "paper"],
        "rows": rows,
        "curves": [
            {"name": name, "x": list(range(1, len(c[0]) + 1)), "y": c[0]} for name, c in by_method.items()
        ],
        "x_label": "epoch or sweep",
        "y_label": "test accuracy",
        "notes": [
            f"Weights start with deviation 0.01 in the first layer, {0.01 * (600 / width) ** 0.5:.3f} in the "
            "others, biases at 0.1; those of 'SGD, Xavier' and 'ISGM, Xavier' by Xavier's rule.",
        ],
    }


def trial(
    sizes: tuple[int, ...], train: Pair, test: Pair, seed: int, lengths: dict[str, int]
) -> dict[str, list[float]]:
    """Every method from one seed."""
    curves: dict[str, list[float]] = {}
    makers = {
        "SGD": ("small", lambda p: torch.optim.SGD(p, lr=0.01)),
        "Adam": ("small", lambda p: torch.optim.Adam(p, lr=1e-3)),
        "SGD, Xavier": ("xavier", lambda p: torch.optim.SGD(p, lr=0.01)),
    }
    for name, (init, make) in makers.items():
        model = mlp(sizes, init, seed)
        curves[name] = descend(
            model, train, test, make(model.parameters()), lengths["steps"], nn.CrossEntropyLoss()
        )
    hot = train[0], nn.functional.one_hot(train[1], 10).float()
    splitting = lifted.Splitting(weight_proximal=len(train[0]) / 60_000)
    model = mlp(sizes, "small", seed)
    result = lifted.train(
        model,
        hot,
        method=splitting,
        loss="mse",
        epochs=lengths["sweeps"],
        valid=test,
        seed=seed,
        progress=False,
    )
    curves["three-splitting"] = [row["metric"] for row in result.history]
    for name, init in (("ISGM", "small"), ("ISGM, Xavier", "xavier")):
        model = mlp(sizes, init, seed)
        result = lifted.train(
            model, train, mu=3.0, tau=2.0, epochs=lengths["ISGM"], valid=test, seed=seed, progress=False
        )
        curves[name] = [row["metric"] for row in result.history]
    return curves
