"""Lifted training on full MNIST: alone, as initialization beside Xavier's at equal CPU time, and deep.

python benchmarks/lifted_mnist.py --data DATA --seeds 3 --out benchmarks/results/lifted_mnist.json

Weights are trained by ISGM with the Bregman penalty; the test set is looked at after every epoch and only
the last epoch counts. Initialized networks go on with Adam at 1e-5, batches of 100, for 17 epochs.
"""

import argparse
import json
import os
import statistics
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchlift import lifted
from torchlift.data.images import mnist
from torchlift.methods.lifted.data import metric

Pair = tuple[Tensor, Tensor]
OPTIONS: dict[str, Any] = {"mu": 3.0, "tau": 5.0, "rounds": 1, "inner": 8, "schedule": "linear"}


def flat(pair: Pair) -> Pair:
    """Images as rows in [0, 1]."""
    return pair[0].flatten(1).float() / 255, pair[1]


def mlp(hidden: tuple[int, ...], seed: int) -> nn.Sequential:
    """A ReLU network with Xavier weights and biases 0.1."""
    generator = torch.Generator().manual_seed(seed)
    modules: list[nn.Module] = []
    for below, above in pairwise((784, *hidden, 10)):
        layer = nn.Linear(below, above)
        nn.init.xavier_uniform_(layer.weight, generator=generator)
        nn.init.constant_(layer.bias, 0.1)
        modules += [layer, nn.ReLU()]
    return nn.Sequential(*modules[:-1])


def adam(model: nn.Module, train: Pair, test: Pair, seconds: float = 0.0) -> list[dict[str, Any]]:
    """Adam at 1e-5 with batches of 100: 17 epochs, and on until so many CPU seconds have passed."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, fused=True)
    generator = torch.Generator().manual_seed(0)
    rows, spent = [], 0.0
    while len(rows) < 17 or spent < seconds:
        start = time.process_time()
        for index in torch.randperm(len(train[0]), generator=generator).split(100):
            optimizer.zero_grad()
            out = model(train[0].index_select(0, index))
            nn.functional.cross_entropy(out, train[1][index]).backward()
            optimizer.step()
        spent += time.process_time() - start
        rows.append({"epoch": len(rows) + 1, "metric": metric(model, test), "seconds": spent})
    return rows


def run(
    hidden: tuple[int, ...], train: Pair, test: Pair, seed: int, epochs: int, go_on: bool
) -> dict[str, Any]:
    """One architecture and seed: lifted alone, then (if wanted) Adam from there and from Xavier."""
    model = mlp(hidden, seed)
    start = time.process_time()
    alone = lifted.train(model, train, epochs=epochs, valid=test, seed=seed, progress=False, **OPTIONS)
    cpu = time.process_time() - start
    result: dict[str, Any] = {
        "hidden": list(hidden),
        "seed": seed,
        "lifted": alone.history[-1]["metric"],
        "lifted_seconds": alone.seconds,
        "lifted_cpu_seconds": cpu,
        "lifted_curve": [row["metric"] for row in alone.history],
        "penalties": alone.history[-1]["penalties"],
    }
    if go_on:
        after = adam(model, train, test)
        total = cpu + after[-1]["seconds"]
        xavier = adam(mlp(hidden, seed), train, test, total)
        result |= {
            "init": after[-1]["metric"],
            "init_total_cpu_seconds": total,
            "init_curve": [row["metric"] for row in after],
            "xavier_17": xavier[16]["metric"],
            "xavier_equal_time": xavier[-1]["metric"],
            "xavier_cpu_seconds": xavier[-1]["seconds"],
            "xavier_equal_time_epochs": len(xavier),
            "xavier_curve": [row["metric"] for row in xavier],
        }
    return result


def summary(rows: list[dict[str, Any]], key: str) -> str:
    """Mean and spread over seeds."""
    values = [row[key] for row in rows if key in row]
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.4f} ± {spread:.4f}"


def main() -> None:
    """Run all seeds, print and write the figures after each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=os.environ.get("TORCHLIFT_DATA"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--samples", type=int, default=60_000)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/lifted_mnist.json"))
    arguments = parser.parse_args()
    train, test = (flat(pair) for pair in mnist(arguments.data))
    train = train[0][: arguments.samples], train[1][: arguments.samples]
    rows: list[dict[str, Any]] = []
    for seed in range(arguments.seeds):
        for hidden, go_on in (((300,), True), ((400, 200, 100, 50), False)):
            rows.append(run(hidden, train, test, seed, arguments.epochs, go_on))
            print({k: v for k, v in rows[-1].items() if "curve" not in k}, flush=True)
            record = {
                "title": "Lifted training on MNIST: alone, as initialization, with four hidden layers",
                "scale": f"{len(train[0])} training, {len(test[0])} test images, {arguments.epochs} epochs "
                "of ISGM, then Adam at 1e-5",
                "seeds": sorted({row["seed"] for row in rows}),
                "command": "python benchmarks/lifted_mnist.py --data DATA "
                f"--seeds {arguments.seeds} --epochs {arguments.epochs} --samples {arguments.samples}",
                "options": OPTIONS,
                "torch": torch.__version__,
                "threads": torch.get_num_threads(),
                "cores": os.cpu_count(),
                "note": "one thread on a shared machine: comparisons at equal time use CPU seconds",
                "rows": rows,
            }
            arguments.out.write_text(json.dumps(record, indent=1) + "\n")
    shallow = [row for row in rows if row["hidden"] == [300]]
    deep = [row for row in rows if row["hidden"] != [300]]
    for key in ("lifted", "init", "xavier_17", "xavier_equal_time", "lifted_seconds", "lifted_cpu_seconds"):
        print(f"300: {key} {summary(shallow, key)}")
    print(f"400-200-100-50: lifted {summary(deep, 'lifted')}")


if __name__ == "__main__":
    main()
