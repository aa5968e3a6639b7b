"""Sparse codes by a norm on the states: lifted autoencoders of digits, with and without it."""

import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from papers.common.arms import machine
from papers.common.mnist_mlp import digits, mlp, spread
from torchlift import lifted

IMAGES, CODE, EPOCHS, TAU = 2_000, 64, 5, 2.0
WEIGHTS = (0.0, 0.1, 0.5)
"""Of the mean over samples of Σ|u|, beside that of ½‖x − v‖²."""


def trained(train: Tensor, weight: float, epochs: int, seed: int) -> nn.Sequential:
    """784–64–784 with ReLU codes, by implicit steps on ½‖x − v‖² + B(u, v) + weight·Σ|u|."""
    model = mlp((784, CODE, 784), "xavier", seed)
    method = lifted.ISGM(tau=TAU, state_l1=weight, batch_size=50)
    lifted.train(model, (train, train), method=method, loss="mse", epochs=epochs, seed=seed, progress=False)
    return model


@torch.no_grad()
def measured(model: nn.Sequential, images: Tensor) -> dict[str, float]:
    """Of the forward pass on images that were not trained on."""
    code = model[:2](images)
    error = (model(images) - images).square().sum(1).mean()
    return {"zeros": float((code == 0).double().mean()), "error": float(error)}


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
) -> dict[str, Any]:
    """A row for every weight of the norm."""
    del out
    torch.set_num_threads(1)
    (train, _), (test, _) = digits(data, images or IMAGES, images or IMAGES)
    numbers, passes = range(seeds or 3), max(1, round(epochs or EPOCHS))
    mean = float((test - train.mean(0)).square().sum(1).mean())
    rows: list[dict[str, Any]] = []
    for weight in WEIGHTS:
        start = time.process_time()
        runs = [measured(trained(train, weight, passes, seed), test) for seed in numbers]
        rows.append(
            {
                "weight": weight,
                "zeros in codes": spread([one["zeros"] for one in runs]),
                "squared error": spread([one["error"] for one in runs]),
                "CPU seconds": (time.process_time() - start) / len(numbers),
            }
        )
    return {
        "title": "Sparse autoencoders by a norm on the states",
        "source": "Askari et al., Lifted Neural Networks, section 9, extensions",
        "finding": "; ".join(
            f"weight {row['weight']:g}: {row['zeros in codes']['mean']:.2f} of the codes 0, squared error "
            f"{row['squared error']['mean']:.1f}"
            for row in rows
        )
        + f" (the mean image: {mean:.1f}), on digits that were not trained on",
        "scale": f"{len(train)} digits, {CODE} units, {passes} epochs",
        "seeds": list(numbers),
        "machine": machine(),
        "columns": list(rows[0]),
        "rows": rows,
        "curves": [],
        "notes": ["The source names sparse autoencoders as an extension and shows no numbers."],
    }
