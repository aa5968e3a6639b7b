"""Lifted (contrastive, one pass of states) against Adam on MNIST, both tuned alike, at their CPU time.

python benchmarks/lifted_parity.py --data DATA --out benchmarks/results/lifted_parity.json

Each arm has the same number of trials: four learning rates times two values of a second setting (lifted: β;
Adam: weight decay), on 20,000 training digits, judged on the last 10,000 training digits. The best is trained
on all 60,000 with three new seeds; the test set is looked at once, after the last epoch. Both arms run
through ``tl.fit`` with batches of 100 and a cosine schedule. What is in the JSON already is not run again.
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
TUNING, VALID = 20_000, 10_000


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
    """An architecture and how long it is trained."""

    make: Callable[[], nn.Module]
    tuning: int
    epochs: int


NETS = {
    "300": Net(partial(mlp, 300), 5, 12),
    "400-200-100-50": Net(partial(mlp, 400, 200, 100, 50), 5, 12),
    "conv, average pooling": Net(convnet, 3, 5),
}
RATES = (5e-4, 1e-3, 2e-3, 4e-3)
SECOND = {"lifted": ("beta", (0.01, 0.5)), "adam": ("weight_decay", (0.0, 1e-2))}


def train(
    net: Net, arm: str, setting: dict[str, float], data: Pair, test: Pair, epochs: int, seed: int
) -> Any:
    """One run: accuracy and CPU seconds of training."""
    torch.manual_seed(seed)
    decay = setting.get("weight_decay", 0.0)
    recipe = tl.recipes.Lifted(options={"beta": setting["beta"]}) if arm == "lifted" else None
    model, start = net.make(), time.process_time()
    result = tl.fit(
        model,
        data,
        recipe=recipe,
        optimizer=partial(torch.optim.AdamW, lr=setting["lr"], weight_decay=decay),
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


def settings(arm: str) -> list[dict[str, float]]:
    """The trials of an arm."""
    name, values = SECOND[arm]
    return [{"lr": lr, name: value} for lr in RATES for value in values]


def main() -> None:
    """Tune, train, write after every cell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=os.environ.get("TORCHLIFT_DATA"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/lifted_parity.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    (x, y), (test_x, test_y) = mnist(arguments.data)
    x, test = x.reshape(-1, 1, 28, 28).float() / 255, (test_x.reshape(-1, 1, 28, 28).float() / 255, test_y)
    record: dict[str, Any] = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    cells: dict[str, Any] = record.get("cells", {})

    def cell(key: str, run: Callable[[], Any]) -> Any:
        if key not in cells:
            cells[key] = run()
            print(key, cells[key], flush=True)
            arguments.out.write_text(json.dumps(written(cells, arguments.seeds), indent=1) + "\n")
        return cells[key]

    small, held = (x[:TUNING], y[:TUNING]), (x[-VALID:], y[-VALID:])
    for name, net in NETS.items():
        chosen: dict[str, dict[str, float]] = {}
        for arm in SECOND:
            tried = [
                (
                    cell(
                        f"{name} | {arm} | tune | {s}",
                        partial(train, net, arm, s, small, held, net.tuning, 0),
                    ),
                    s,
                )
                for s in settings(arm)
            ]
            chosen[arm] = max(tried, key=lambda pair: pair[0]["accuracy"])[1]
        for seed in range(1, arguments.seeds + 1):
            for arm, s in chosen.items():
                cell(
                    f"{name} | {arm} | final {seed} | {s}",
                    partial(train, net, arm, s, (x, y), test, net.epochs, seed),
                )
    print(json.dumps(summary(cells), indent=1))


def summary(cells: dict[str, Any]) -> dict[str, Any]:
    """Mean and deviation over seeds, per network and arm."""
    rows: dict[str, Any] = {}
    for name in NETS:
        for arm in SECOND:
            finals = {k: v for k, v in cells.items() if k.startswith(f"{name} | {arm} | final")}
            if not finals:
                continue
            values = [v["accuracy"] for v in finals.values()]
            rows[f"{name} | {arm}"] = {
                "setting": next(iter(finals)).split(" | ")[-1],
                "test": values,
                "mean": statistics.fmean(values),
                "deviation": statistics.stdev(values) if len(values) > 1 else 0.0,
                "cpu_seconds": statistics.fmean(v["cpu_seconds"] for v in finals.values()),
                "cost": statistics.fmean(v["cost"] for v in finals.values()),
            }
    return rows


def written(cells: dict[str, Any], seeds: int) -> dict[str, Any]:
    """The record as it stands."""
    return {
        "title": "Lifted contrastive training against Adam on MNIST, equally tuned",
        "scale": f"60,000 training and 10,000 test images; tuned on {TUNING} with {VALID} held out",
        "command": f"python benchmarks/lifted_parity.py --data DATA --seeds {seeds}",
        "trials": {arm: len(settings(arm)) for arm in SECOND},
        "seeds": list(range(1, seeds + 1)),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "threads": 1,
        "note": "CPU seconds of one thread on a shared machine; the test set is looked at once per run",
        "summary": summary(cells),
        "cells": cells,
    }


if __name__ == "__main__":
    main()
