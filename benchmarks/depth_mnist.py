"""MNIST with ten hidden layers of 50 tanh neurons, pruned to five: by linearity, by removal, by CKA.

python benchmarks/depth_mnist.py --data DATA --seeds 3 --scale 1 --out benchmarks/results/depth_mnist.json

Bai et al. (2024), section 5.4 and Figure 8 (95.4 → 95.27 %, agreement 98.54 %). One deep network per seed;
each criterion prunes that same network and trains on for a third of its epochs, and so does the deep
network itself, as control. The last epoch counts; latency is the median of alternating calls on one sample.
"""

import argparse
import json
import os
import platform
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import torchlift as tl
from torchlift.core import Fit, Task
from torchlift.data import mnist
from torchlift.recipes.tools.thinning import inputs

Pair = tuple[Tensor, Tensor]
CRITERIA = ("linearity", "removal", "cka")


def flat(pair: Pair) -> Pair:
    """Images as rows in [0, 1]."""
    return pair[0].flatten(1).float() / 255, pair[1]


def network(hidden: int, std: float, seed: int) -> nn.Module:
    """Ten hidden layers, all parameters drawn from N(0, std²)."""
    model = tl.models.MLP(784, *[50] * hidden, 10, activation=nn.Tanh)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(std * torch.randn(parameter.shape, generator=generator))
    return model


def accuracy(model: nn.Module, test: Pair) -> float:
    """On the test set, in percent."""
    with torch.no_grad():
        return 100 * float((model.eval()(test[0]).argmax(1) == test[1]).float().mean())


def agreement(one: nn.Module, other: nn.Module, x: Tensor) -> float:
    """How often two models name the same class, in percent."""
    with torch.no_grad():
        return 100 * float((one.eval()(x).argmax(1) == other.eval()(x).argmax(1)).float().mean())


def latencies(models: dict[str, nn.Module], x: Tensor, repeats: int) -> dict[str, float]:
    """Median microseconds of a call, the models taking turns."""
    seconds: dict[str, list[float]] = {name: [] for name in models}
    with torch.inference_mode():
        for _ in range(repeats):
            for name, model in models.items():
                start = time.perf_counter()
                model(x)
                seconds[name].append(time.perf_counter() - start)
    return {name: 1e6 * statistics.median(times) for name, times in seconds.items()}


def run(train: Pair, valid: Pair, test: Pair, seed: int, epochs: float, std: float) -> dict[str, Any]:
    """One seed: a deep network, its three prunings, and its own continuation."""
    found: dict[str, Any] = {}
    models: dict[str, nn.Module] = {}

    def recipe(task: Task, fit: Fit) -> Task:
        x = inputs(fit, 2048)
        fit(task, name="deep", epochs=epochs, log=tl.analyze.Depth(x))
        deep = Task(task.model, task.loss)
        models["deep"] = deep.model
        for criterion in CRITERIA:
            small = tl.recipes.LayerPruning(layers=5, criterion=criterion).pruned(deep, fit, x)
            before = accuracy(small.model, test)
            fit(small, name=criterion, epochs=epochs / 3)
            models[criterion] = small.model
            found[criterion] = {
                "pruned": before,
                "test": accuracy(small.model, test),
                "agreement": agreement(deep.model, small.model, test[0]),
            }
        found["linearity at the end"] = tl.analyze.linearity(deep.model, x)
        found["deep"] = {"test": accuracy(deep.model, test)}
        longer = Task(network(10, std, seed), task.loss)
        longer.load_state_dict(deep.state_dict())
        fit(longer, name="deep, on", epochs=epochs / 3)
        found["deep, on"] = {"test": accuracy(longer.model, test)}
        return deep

    optimizer = partial(torch.optim.Adam, lr=1e-3)
    options: dict[str, Any] = {"optimizer": optimizer, "schedule": "cosine", "batch_size": 500}
    result = tl.fit(network(10, std, seed), train, valid, recipe=recipe, seed=seed, progress=False, **options)
    times = latencies(models, test[0][:1], 2001)
    curve = [row for row in result.history if row["phase"] == "deep"]
    return {
        "seed": seed,
        **found,
        "latency_us": times,
        "latency_ratio": times["deep"] / times["linearity"],
        "linearity by epoch": [
            [round(v, 4) for k, v in row.items() if k.startswith("linearity ")] for row in curve
        ],
        "valid by epoch": [row["metric"] for row in curve],
    }


def mean(values: list[float]) -> str:
    """Mean and spread over seeds."""
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.2f} ± {spread:.2f}"


def main() -> None:
    """Run all seeds, print and write the figures after each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=os.environ.get("TORCHLIFT_DATA"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="1: 18 epochs deep, 6 after pruning")
    parser.add_argument("--std", type=float, default=0.1, help="of the initial weights")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/depth_mnist.json"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    whole, test = (flat(pair) for pair in mnist(given.data))
    train, valid = tuple(t[:55_000] for t in whole), tuple(t[55_000:] for t in whole)
    rows: list[dict[str, Any]] = []
    for seed in range(given.seeds):
        rows.append(run(train, valid, test, seed, 18 * given.scale, given.std))
        print(json.dumps({k: v for k, v in rows[-1].items() if "by epoch" not in k}), flush=True)
        record = {
            "title": "MNIST, ten hidden layers pruned to five: by linearity, removal and CKA",
            "scale": f"55,000 training images, {18 * given.scale:g} epochs deep, a third of it after pruning",
            "seeds": [row["seed"] for row in rows],
            "command": f"python benchmarks/depth_mnist.py --data DATA --seeds {given.seeds} "
            f"--scale {given.scale:g} --std {given.std:g}",
            "torch": torch.__version__,
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "threads": 1,
            "rows": rows,
        }
        given.out.write_text(json.dumps(record, indent=1) + "\n")
    for name in ("deep", "deep, on", *CRITERIA):
        print(f"{name}: {mean([row[name]['test'] for row in rows])}")
    print(f"lost by linearity: {mean([row['deep']['test'] - row['linearity']['test'] for row in rows])}")
    print(f"latency ratio: {mean([row['latency_ratio'] for row in rows])}")


if __name__ == "__main__":
    main()
