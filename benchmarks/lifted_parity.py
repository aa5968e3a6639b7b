"""Lifted (contrastive, one pass of states) against Adam on MNIST, both tuned alike, with their CPU time.

python benchmarks/lifted_parity.py --data DATA --samples 60000

Both arms have the same four trials, learning rates, on the first digits (at most 10,000), judged on the last
10,000 training digits; beyond 50,000 samples the final training includes those. The best is trained with
three new seeds, and the test set is looked at once, after the last epoch. Both arms run through ``tl.fit``
with batches of 100, Adam and a cosine schedule. What is in the JSON already is not run again.
"""

import argparse
import dataclasses
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import torchlift as tl
from torchlift.data.images import mnist

Pair = tuple[Tensor, Tensor]
TUNING, VALID = 10_000, 10_000
RATES = (1e-3, 2e-3, 4e-3, 8e-3)
ARMS: dict[str, Any] = {
    "lifted": tl.recipes.Lifted(),
    "adam": None,
    "init": tl.recipes.LiftedInit(epochs=1),
    "init, lr 1e-5": tl.recipes.LiftedInit(epochs=1),
    "adam, lr 1e-5": None,
}
"""The last three (``--arms``): a pass of lifted training before the epochs of Adam; at the source's rate."""


def mlp(*hidden: int) -> nn.Module:
    """A ReLU network on flat images."""
    modules: list[nn.Module] = [nn.Flatten()]
    for below, above in pairwise((784, *hidden, 10)):
        modules += [nn.Linear(below, above), nn.ReLU()]
    return nn.Sequential(*modules[:-1])


def convnet() -> nn.Module:
    """Two convolutions with average pooling."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, padding=2),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(8, 16, 5, padding=2),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(784, 10),
    )


@dataclasses.dataclass(frozen=True)
class Net:
    """An architecture, and for how many epochs it is tuned and trained."""

    make: Callable[[], nn.Module]
    tuning: int
    epochs: int


NETS = {
    "300": Net(partial(mlp, 300), 5, 10),
    "400-200-100-50": Net(partial(mlp, 400, 200, 100, 50), 5, 10),
    "conv": Net(convnet, 3, 4),
}


def train(net: Net, arm: str, lr: float, data: Pair, test: Pair, epochs: int, seed: int) -> dict[str, float]:
    """One run: accuracy, CPU seconds and cost of training."""
    torch.manual_seed(seed)
    model, start = net.make(), time.process_time()
    result = tl.fit(
        model,
        data,
        recipe=ARMS[arm],
        optimizer=partial(torch.optim.Adam, lr=lr),
        schedule="cosine",
        epochs=epochs,
        batch_size=100,
        seed=seed,
        progress=False,
    )
    cpu = time.process_time() - start
    with torch.no_grad():
        guess = torch.cat([result.model(x).argmax(1) for x in test[0].split(2000)])
    return {"accuracy": float((guess == test[1]).double().mean()), "cpu_seconds": cpu, "cost": result.cost}


def main() -> None:
    """Tune, train, write after every cell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=os.environ.get("TORCHLIFT_DATA"))
    parser.add_argument("--samples", type=int, default=60_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--arms", nargs="*", choices=ARMS, default=["lifted", "adam"])
    parser.add_argument("--nets", nargs="*", choices=NETS, default=list(NETS))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/lifted_parity.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    (x, y), (test_x, test_y) = mnist(options.data)
    x, test = x.reshape(-1, 1, 28, 28).float() / 255, (test_x.reshape(-1, 1, 28, 28).float() / 255, test_y)
    cells: dict[str, Any] = json.loads(options.out.read_text())["cells"] if options.out.exists() else {}

    def cell(key: str, run: Callable[[], Any]) -> Any:
        if key not in cells:
            cells[key] = run()
            print(key, cells[key], flush=True)
            options.out.write_text(json.dumps(written(cells), indent=1) + "\n")
        return cells[key]

    n = min(TUNING, options.samples)
    small, valid = (x[:n], y[:n]), (x[-VALID:], y[-VALID:])
    whole = x[: options.samples], y[: options.samples]
    for name in options.nets:
        net, head, chosen = NETS[name], f"{options.samples} | {name}", dict[str, float]()
        for arm in options.arms:
            if "lr" in arm:
                chosen[arm] = 1e-5
                continue
            jobs = {lr: partial(train, net, arm, lr, small, valid, net.tuning, 0) for lr in RATES}
            tried = {lr: cell(f"{head} | {arm} | tune | {lr:g}", job) for lr, job in jobs.items()}
            chosen[arm] = max(tried, key=lambda lr: tried[lr]["accuracy"])
        for seed in range(1, options.seeds + 1):
            for arm, lr in chosen.items():
                job = partial(train, net, arm, lr, whole, test, net.epochs, seed)
                cell(f"{head} | {arm} | final | {lr:g} | {seed}", job)
    print(json.dumps(summary(cells), indent=1))


def summary(cells: dict[str, Any]) -> dict[str, Any]:
    """Mean and deviation over seeds, per size, network and arm."""
    rows: dict[str, dict[str, Any]] = {}
    for key, value in cells.items():
        samples, name, arm, phase, lr, *_ = key.split(" | ")
        if phase == "final":
            row = rows.setdefault(f"{samples} | {name} | {arm}", {"lr": float(lr), "test": [], "cpu": []})
            row["test"].append(value["accuracy"])
            row["cpu"].append(value["cpu_seconds"])
    for row in rows.values():
        row |= {"mean": statistics.fmean(row["test"]), "cpu_seconds": statistics.fmean(row.pop("cpu"))}
        row["deviation"] = statistics.stdev(row["test"]) if len(row["test"]) > 1 else 0.0
    return rows


def written(cells: dict[str, Any]) -> dict[str, Any]:
    """The record as it stands."""
    return {
        "title": "Lifted contrastive training against Adam on MNIST, equally tuned",
        "scale": "training samples head each line; 10,000 test images",
        "command": "python benchmarks/lifted_parity.py --data DATA --samples 60000 (or 8000)",
        "trials": len(RATES),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "threads": 1,
        "note": "CPU seconds of one thread on a shared, busy machine; the test set is looked at once per run",
        "summary": summary(cells),
        "cells": cells,
    }


if __name__ == "__main__":
    main()
