"""Denoising digits: lifted Bregman training beside back-propagation; tanh beside soft-threshold."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from papers.common.arms import machine
from papers.common.mnist_mlp import Pair, descend, digits, mlp, spread
from torchlift import lifted

ACTIVATIONS: dict[str, dict[str, float]] = {"tanh": {}, "soft_threshold": {"t": 0.1}, "relu": {}}
NOISE = 0.3


def noisy(images: Tensor, seed: int) -> Pair:
    """Images with Gaussian noise, and themselves."""
    generator = torch.Generator().manual_seed(seed)
    return images + NOISE * torch.randn(images.shape, generator=generator), images


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
) -> dict[str, Any]:
    """784-200-784, three activations, trained both ways; 60,000 images unless given."""
    del out
    train, test = digits(data, images or 60_000, 1_000)
    length = max(1, round(epochs or 8))
    rows: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    for name, parameters in ACTIVATIONS.items():
        for method in ("lifted", "adam"):
            make = partial(trial, name, parameters, method, train[0], test[0], length)
            errors = [make(s) for s in range(seeds or 1)]
            rows.append({"activation": name, "method": method, **spread([curve[-1] for curve in errors])})
            curves.append(
                {"name": f"{name}, {method}", "x": list(range(1, len(errors[0]) + 1)), "y": errors[0]}
            )
    best = min(rows, key=lambda one: one["mean"])
    return {
        "title": "Denoising MNIST: mean squared error on test images",
        "source": "A Unified Framework for Lifted Training and Inversion Approaches (arXiv 2510.09796)",
        "finding": f"least error {best['mean']:.4f} ({best['activation']}, {best['method']}); "
        + "; ".join(f"{one['activation']} {one['method']} {one['mean']:.4f}" for one in rows),
        "scale": f"{len(train[0])} training and {len(test[0])} test images, noise {NOISE}, {length} epochs",
        "seeds": list(range(seeds or 1)),
        "machine": machine(),
        "columns": ["activation", "method", "mean", "sd"],
        "rows": rows,
        "curves": curves,
        "x_label": "epoch",
        "y_label": "mean squared error",
        "notes": [f"The noisy image itself has an error of {NOISE**2:.3f}. The paper reports no figures."],
    }


def trial(
    activation: str, parameters: dict[str, float], method: str, train: Tensor, test: Tensor, epochs: int,
    seed: int,
) -> list[float]:  # fmt: skip
    """The test error after every epoch."""
    model = mlp((784, 200, 784), "xavier", seed, lifted.Act(activation, **parameters))
    data, noisy_test = noisy(train, seed), noisy(test, 10_000)
    if method == "adam":
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        return descend(model, data, noisy_test, optimizer, epochs, nn.MSELoss())
    options: dict[str, Any] = {"tau": 0.3, "rounds": 1, "inner": 8, "schedule": "linear", "batch_size": 100}
    result = lifted.train(
        model, data, loss="mse", mu=1.0, epochs=epochs, valid=noisy_test, seed=seed, progress=False, **options
    )
    return [row["metric"] for row in result.history]
