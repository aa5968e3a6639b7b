"""Figure 12: layers act more linearly from smaller weights and on less data (Fashion-MNIST)."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import torchlift as tl
from papers.common.arms import machine
from papers.common.cells import Cells
from papers.common.protocol import protocol
from papers.embedding_principle.traces import SOURCE, Pair, gaussian
from torchlift.data.images import fashion_mnist, mnist

PUBLISHED = protocol("embedding_principle", "Figure 12")
STDS = (0.003, 0.005, 0.02, 0.1, 0.2)
"""The first three are the paper's; a deviation of 0.1 keeps the size of signals through layers of 100."""
SIZES = (500, 5_000, 50_000)
STD, SAMPLES = 0.1, 5_000


def trial(
    train: Pair, test: Pair, std: float, epochs: float, settings: dict[str, Any], seed: int
) -> dict[str, Any]:
    """Ten hidden layers of 100 tanh, SGD with batches of 512: linearity of each layer at the end."""
    sizes = (train[0].shape[1], *[100] * 10, 10)
    model = gaussian(tl.models.MLP(*sizes, activation=nn.Tanh), std, seed)
    model = tl.fit(model, train, epochs=epochs, seed=seed, progress=False, **settings).model.cpu()
    lines = tl.analyze.linearity(model, train[0][:1_000])
    with torch.no_grad():
        right = float((model(test[0]).argmax(1) == test[1]).float().mean())
    return {"linearity": [round(v, 4) for v in lines.values()], "accuracy": 100 * right}


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
    stand_in: bool = False,
) -> dict[str, Any]:
    """Deviations on 5,000 images, sizes up to 50,000: as many steps for each as 50 epochs of the most.

    The stand-in: digits of MNIST for Fashion-MNIST.
    """
    torch.set_num_threads(1)
    name = "MNIST" if stand_in else "Fashion-MNIST"
    share, numbers = (images or SIZES[-1]) / SIZES[-1], range(seeds or 2)
    settings = PUBLISHED.settings("SGD") | ({} if device is None else {"device": device})
    whole, test = ((x.flatten(1).float() / 255, y) for x, y in (mnist if stand_in else fashion_mnist)(data))
    cells = Cells(Path(out) / "depth_dependence" / f"cells-{name}-{share:g}-{epochs or 50:g}.jsonl")
    sizes = [max(32, round(size * share)) for size in SIZES]
    count, length = max(32, min(SAMPLES, sizes[-1])), PUBLISHED.length("SGD", epochs)
    rows: list[dict[str, Any]] = []
    for std, size in [(std, count) for std in STDS] + [(STD, size) for size in sizes]:
        longer = length * sizes[-1] / size if std == STD else length  # as many steps for all sizes
        make = partial(trial, (whole[0][:size], whole[1][:size]), test, std, longer, settings)
        trials = cells.all({f"{std} {size} {s}": partial(make, s) for s in numbers})
        rows.append(
            {
                "deviation of the weights": std,
                "images": size,
                "mean linearity of the layers": [
                    round(sum(one["linearity"]) / len(one["linearity"]), 4) for one in trials
                ],
                "layers above 0.99": [sum(v > 0.99 for v in one["linearity"]) for one in trials],
                "test accuracy": [round(one["accuracy"], 2) for one in trials],
            }
        )
    key = "mean linearity of the layers"
    means = [f"{row['deviation of the weights']:g}: {row[key]}" for row in rows[: len(STDS)]]
    sized = [f"{row['images']}: {row[key]}" for row in rows[len(STDS) :]]
    return {
        "title": f"Linear layers by initial scale and by data, {name}",
        "source": f"{SOURCE}, Figure 12",
        "finding": f"mean linearity by deviation of the weights: {'; '.join(means)}; by number of images: "
        f"{'; '.join(sized)}",
        "scale": f"{name}, {count} images for the deviations, {sizes} for the sizes, the steps of "
        f"{length:g} epochs on the most",
        "stand_in": stand_in,
        "seeds": list(numbers),
        "machine": machine(),
        "columns": list(rows[0]),
        "linearity, fewest images": rows[len(STDS)][key],
        "linearity, most images": rows[-1][key],
        "rows": rows,
        "notes": [
            "Ten hidden layers of 100 tanh neurons, SGD at 0.01, batches of 512, equal steps for all sizes.",
            "Where the accuracy is 10 %, the network learnt nothing: its layers are linear because nothing "
            "passes through them.",
        ],
    }
