"""Figure 8: MNIST with ten hidden layers of 50 tanh neurons, pruned to five: by linearity, removal, CKA.

One deep network per seed; each criterion prunes that same network and trains on for a third of its epochs,
and so does the deep network itself, as control. The last epoch counts; latency is the median of calls that
alternate, on one sample.
"""

import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import torchlift as tl
from papers.common.arms import machine, spread
from papers.common.cells import Cells
from papers.embedding_principle.traces import SOURCE, gaussian
from torchlift.core import Fit, Task
from torchlift.data import mnist
from torchlift.methods.depth.thinning import inputs

Pair = tuple[Tensor, Tensor]
CRITERIA = ("linearity", "removal", "cka")
STD, CALLS = 0.1, 2001


def flat(pair: Pair) -> Pair:
    """Images as rows in [0, 1]."""
    return pair[0].flatten(1).float() / 255, pair[1]


def network(hidden: int, std: float, seed: int) -> nn.Module:
    """Ten hidden layers, all parameters drawn from N(0, std²)."""
    return gaussian(tl.models.MLP(784, *[50] * hidden, 10, activation=nn.Tanh), std, seed)


def accuracy(model: nn.Module, test: Pair) -> float:
    """On the test set, in percent."""
    with torch.no_grad():
        return 100 * float((model.eval()(test[0]).argmax(1) == test[1]).float().mean())


def similarity(one: nn.Module, other: nn.Module, x: Tensor) -> Tensor:
    """Figure 8(d): of the inputs that the first calls j, the number that the second calls i; i × j."""
    with torch.no_grad():
        j, i = one.eval()(x).argmax(1), other.eval()(x).argmax(1)
    return torch.zeros(10, 10, dtype=torch.int64).index_put_((i, j), torch.tensor(1), accumulate=True)


def agreement(counts: Tensor) -> float:
    """How often two models name the same class, in percent."""
    return 100 * float(counts.trace() / counts.sum())


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


def trial(train: Pair, valid: Pair, test: Pair, seed: int, epochs: float, std: float) -> dict[str, Any]:
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
            merged = agreement(similarity(deep.model, small.model, test[0]))
            fit(small, name=criterion, epochs=epochs / 3)
            models[criterion] = small.model
            counts = similarity(deep.model, small.model, test[0])
            found[criterion] = {
                "pruned": before,
                "agreement, pruned": merged,
                "test": accuracy(small.model, test),
                "agreement": agreement(counts),
                "predictions": counts.tolist(),
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
    times = latencies(models, test[0][:1], CALLS)
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


def run(
    out: Path, data: str | None = None, seeds: int | None = None, scale: float | None = None
) -> dict[str, Any]:
    """``scale`` 1 is 18 epochs deep on 55,000 digits and six after pruning."""
    torch.set_num_threads(1)
    part, numbers = scale or 1.0, range(seeds or 3)
    whole, test = (flat(pair) for pair in mnist(data))
    held = len(whole[0]) // 12
    (x, y) = whole
    train, valid = (x[:-held], y[:-held]), (x[-held:], y[-held:])
    cells = Cells(Path(out) / "depth_pruning" / f"cells-{part:g}.jsonl")
    found = [cells.get(str(s), partial(trial, train, valid, test, s, 18 * part, STD)) for s in numbers]
    rows = [row(name, found) for name in ("deep", "deep, on", *CRITERIA)]
    lost = spread([one["deep"]["test"] - one["linearity"]["test"] for one in found])
    faster = spread([one["latency_ratio"] for one in found])
    mine = rows[2]
    return {
        "title": "MNIST, ten hidden layers pruned to five: by linearity, removal and CKA",
        "source": f"{SOURCE}, section 5.4 and Figure 8",
        "finding": f"by linearity {rows[0]['test accuracy']['mean']:.2f} → "
        f"{mine['test accuracy']['mean']:.2f} % "
        f"(lost {lost['mean']:+.2f} ± {lost['sd']:.2f} points; paper 95.4 → 95.27 %), the same class on "
        f"{mine['agreement']['mean']:.2f} % (paper 98.54 %), a call on one image {faster['mean']:.2f} ± "
        f"{faster['sd']:.2f} times as fast",
        "scale": f"{len(train[0]):,} training images, {18 * part:g} epochs deep, a third of it after pruning",
        "seeds": list(numbers),
        "machine": machine(),
        "columns": list(rows[0]),
        "rows": rows,
        "networks": found,
        "notes": [
            "Agreement: with the deep network, on test images, after training on; pruned: before it. The "
            "counts of "
            "Figure 8(d) are under networks, predictions: row i, column j, what was j to the deep network."
        ],
    }


def row(name: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    """One network over the seeds."""
    some = [one[name] for one in found]

    def several(key: str) -> Any:
        return spread([one[key] for one in some]) if key in some[0] else None

    latency = [one["latency_us"][name] for one in found if name in one["latency_us"]]
    return {
        "network": name,
        "test accuracy": several("test"),
        "pruned": several("pruned"),
        "agreement": several("agreement"),
        "agreement, pruned": several("agreement, pruned"),
        "microseconds a call": spread(latency) if latency else None,
    }
