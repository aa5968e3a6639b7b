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
from papers.common.protocol import Protocol, few, protocol
from papers.embedding_principle.traces import SOURCE, gaussian
from torchlift.core import Fit, Task
from torchlift.data import Splits, mnist
from torchlift.methods.depth.thinning import inputs

Pair = tuple[Tensor, Tensor]
CRITERIA = ("linearity", "removal", "cka")
PUBLISHED = protocol("embedding_principle", "Figure 8")
SEEDS, CALLS = 3, 2001


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


def trial(
    published: Protocol, arm: str, data: Splits, seed: int, epochs: float | None, device: str | None
) -> Any:
    """One seed of one reading: a deep network, its three prunings, and its own continuation."""
    scores: dict[str, Any] = {}
    models: dict[str, nn.Module] = {}
    settings, length = published.settings(arm), published.length(arm, epochs)
    std, test = settings.pop("deviation"), data.test

    def recipe(task: Task, fit: Fit) -> Task:
        x = inputs(fit, 2048)
        fit(task, name="deep", epochs=length, log=tl.analyze.Depth(x))
        deep = Task(task.model, task.loss)
        models["deep"] = deep.model
        for criterion in CRITERIA:
            small = tl.recipes.LayerPruning(layers=5, criterion=criterion).pruned(deep, fit, x)
            before = accuracy(small.model, test)
            merged = agreement(similarity(deep.model, small.model, test[0]))
            fit(small, name=criterion, epochs=length / 3)
            models[criterion] = small.model
            counts = similarity(deep.model, small.model, test[0])
            scores[criterion] = {
                "pruned": before,
                "agreement, pruned": merged,
                "test": accuracy(small.model, test),
                "agreement": agreement(counts),
                "predictions": counts.tolist(),
            }
        scores["linearity at the end"] = tl.analyze.linearity(deep.model, x)
        scores["deep"] = {"test": accuracy(deep.model, test)}
        longer = Task(network(10, std, seed), task.loss)
        longer.load_state_dict(deep.state_dict())
        fit(longer, name="deep, on", epochs=length / 3)
        scores["deep, on"] = {"test": accuracy(longer.model, test)}
        return deep

    settings |= {} if device is None else {"device": device}
    result = tl.fit(
        network(10, std, seed), data.train, data.valid, recipe=recipe, seed=seed, progress=False, **settings
    )
    times = latencies({name: model.cpu() for name, model in models.items()}, test[0][:1], CALLS)
    curve = [row for row in result.history if row["phase"] == "deep"]
    every = max(1, len(curve) // 20)
    return {
        "seed": seed,
        **scores,
        "latency_us": times,
        "latency_ratio": times["deep"] / times["linearity"],
        "linearity by epoch": [
            [round(v, 4) for k, v in row.items() if k.startswith("linearity ")] for row in curve[::every]
        ],
        "valid by epoch": [row["metric"] for row in curve[::every]],
    }


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
) -> dict[str, Any]:
    """Readings of appendix C: SGD as printed, Adam, with which the network learns, and Adam with a cosine."""
    torch.set_num_threads(1)
    numbers = range(seeds or SEEDS)
    (x, y), test = (flat(pair) for pair in mnist(data))
    held_out = len(x) // 12
    splits = few(
        Splits((x[:-held_out], y[:-held_out]), (x[-held_out:], y[-held_out:]), test, "classification"), images
    )
    cells = Cells(
        Path(out) / "depth_pruning" / f"cells-{epochs or PUBLISHED.epochs}-{len(splits.train[0])}.jsonl"
    )
    rows: list[dict[str, Any]] = []
    networks: dict[str, Any] = {}
    for arm in PUBLISHED.arms:
        make = partial(trial, PUBLISHED, arm, splits, epochs=epochs, device=device)
        trials = cells.all({f"{arm}, {seed}": partial(make, seed) for seed in numbers})
        networks[arm] = trials
        rows += [{"reading": arm} | row(name, trials) for name in ("deep", "deep, on", *CRITERIA)]
    deep, merged = (
        next(r for r in rows if r["reading"] == "Adam" and r["network"] == n) for n in ("deep", "linearity")
    )
    printed = next(row for row in rows if row["reading"] == "as printed")
    linear = ", ".join(
        f"{row['linear layers']['mean']:.1f} {row['reading']}" for row in rows if row["network"] == "deep"
    )
    return {
        "title": "Figure 8: MNIST, ten hidden layers pruned to five: by linearity, removal and CKA",
        "source": f"{SOURCE}, section 5.4 and Figure 8",
        "finding": f"layers of ten that end above 0.99: {linear} (paper 5); "
        f"with Adam merged to five {deep['test accuracy']['mean']:.2f} → "
        f"{merged['test accuracy']['mean']:.2f} % "
        f"(paper 95.4 → 95.27 %), the same class on {merged['agreement']['mean']:.2f} % (paper 98.54 %); "
        f"with SGD as printed the network ends at {printed['test accuracy']['mean']:.1f} %",
        "scale": f"{len(splits.train[0]):,} training images, {epochs or PUBLISHED.epochs:g} epochs deep, "
        "a third of it after pruning",
        "seeds": list(numbers),
        "machine": machine(),
        "columns": list(rows[0]),
        "rows": rows,
        "networks": networks,
        "curves": [
            {
                "name": f"layer {number + 1}",
                "panel": f"linearity, {arm}, seed 0",
                "x": list(range(len(lines))),
                "y": list(layer),
            }
            for arm, trials in networks.items()
            for lines in [trials[0]["linearity by epoch"]]
            for number, layer in enumerate(zip(*lines, strict=True))
        ],
        "x_label": "twentieths of the training",
        "y_label": "linearity",
        "notes": [
            "Agreement: with the deep network, on test images, after training on; pruned: before it. The "
            "counts of Figure 8(d) are under networks, predictions: row i, column j, what was j to the deep "
            "network.",
            "Appendix C prints SGD at 0.001, batches of 1,000 and N(0, 0.05); 0.05 is read as a deviation.",
        ],
    }


def row(name: str, trials: list[dict[str, Any]]) -> dict[str, Any]:
    """One network over the seeds."""
    some = [one[name] for one in trials]

    def several(key: str) -> Any:
        return spread([one[key] for one in some]) if key in some[0] else None

    latency = [one["latency_us"][name] for one in trials if name in one["latency_us"]]
    linear = [sum(v > 0.99 for v in one["linearity at the end"].values()) for one in trials]
    return {
        "network": name,
        "linear layers": spread(linear) if name == "deep" else None,
        "test accuracy": several("test"),
        "pruned": several("pruned"),
        "agreement": several("agreement"),
        "agreement, pruned": several("agreement, pruned"),
        "microseconds a call": spread(latency) if latency else None,
    }
