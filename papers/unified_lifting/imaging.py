"""Denoising, deblurring, inpainting: unrolled networks, lifted and by back-propagation, beside TV."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from papers.common.arms import difference, machine, spread
from papers.common.cells import Cells
from papers.unified_lifting.observing import TASKS, Task, quality, variation
from papers.unified_lifting.unrolled_training import BATCH, PATCH, train
from torchlift.convex.operators import Operator
from torchlift.data.images import gray
from torchlift.methods.lifted import UnrolledNet

METHODS = ("lifted", "backprop")
RATES = (1e-3, 3e-3)
SECONDS = {"denoising": 10.0}
OTHERS = 5.0
TUNING_SEED, TUNING_IMAGES, SMALL = 100, 6, 3
Seen = tuple[Tensor, Operator, Tensor]


def seen(task: Task, images: Sequence[Tensor], seed: int = 1) -> list[Seen]:
    """(observation, operator, truth) of every image, each 1 × 1 × h × w."""
    generator = torch.Generator().manual_seed(seed)
    clean = [image[None, None].float() / 255 for image in images]
    return [(*task.observe(x, generator), x) for x in clean]


def restored(task: Task, net: UnrolledNet, things: Sequence[Seen]) -> dict[str, list[float]]:
    """What a network makes of them."""
    pairs = []
    with torch.no_grad():
        for y, operator, x in things:
            net.operator = operator
            pairs.append((task.kept(net(y), y, operator), x))
    return quality(pairs)


def smoothed(task: Task, alpha: float, things: Sequence[Seen]) -> dict[str, list[float]]:
    """What total variation makes of them."""
    return quality([(task.kept(variation(task, alpha, y, a), y, a), x) for y, a, x in things])


def started(task: Task, things: Sequence[Seen]) -> dict[str, list[float]]:
    """Where all methods start."""
    fill = task.fill or (lambda y, operator: operator.A_adjoint(y))
    return quality([(task.kept(fill(y, a), y, a), x) for y, a, x in things])


def mean(values: Sequence[float]) -> float:
    """The mean."""
    return sum(values) / len(values)


def rate(task: Task, method: str, images: Sequence[Tensor], seconds: float) -> float:
    """The learning rate that is best on held-back training images after short trainings."""
    held, rest = seen(task, images[-TUNING_IMAGES:], 2), images[:-TUNING_IMAGES]

    def worth(lr: float) -> float:
        return mean(restored(task, train(task, method, rest, seconds, lr, TUNING_SEED)[0], held)["psnr"])

    return max(RATES, key=worth)


def trial(
    task: Task, method: str, images: Sequence[Tensor], seconds: float, lr: float, seed: int, sets: Any
) -> dict[str, Any]:
    """One training; PSNR and SSIM of every test image."""
    net, steps = train(task, method, images[:-TUNING_IMAGES], seconds, lr, seed)
    return {"steps": steps, "lr": lr} | {name: restored(task, net, things) for name, things in sets.items()}


def rows(name: str, known: dict[str, Any], tests: Sequence[str]) -> list[dict[str, Any]]:
    """One line for each method and test set; differences to lifted training are paired by seed."""
    table: list[dict[str, Any]] = []
    for test in tests:
        means = {m: [mean(one[test]["psnr"]) for one in known[m]] for m in METHODS}
        for m in ("start", "TV, best α", *METHODS):
            runs = known[m]
            images = [one[test] for one in runs]
            table.append(
                {
                    "task": name,
                    "test set": test,
                    "method": m,
                    "PSNR": {"mean": mean([mean(i["psnr"]) for i in images]), "sd": sd(images, "psnr")},
                    "SSIM": {"mean": mean([mean(i["ssim"]) for i in images]), "sd": sd(images, "ssim")},
                    "PSNR by seed": spread([mean(i["psnr"]) for i in images]),
                    "to backprop": difference(means["lifted"], means["backprop"]) if m == "lifted" else None,
                    "setting": runs[0].get("lr", runs[0].get("alpha")),
                    "steps": mean([one["steps"] for one in runs]) if m in METHODS else None,
                }
            )
    return table


def sd(images: Sequence[dict[str, list[float]]], key: str) -> float:
    """The spread over images of the mean over seeds."""
    return spread([mean(values) for values in zip(*(one[key] for one in images), strict=True)])["sd"]


def run(
    out: Path, data: str | None = None, seeds: int | None = None, scale: float | None = None
) -> dict[str, Any]:
    """Five tasks; ``scale`` 1 is ten minutes of training each and all of BSD68; without it, seconds."""
    torch.set_num_threads(1)
    numbers = range(seeds or 3)
    cells = Cells(Path(out) / "imaging" / f"cells-{scale or 0:g}.jsonl")
    images, count = gray(data, "Train400"), 10 if scale is None else max(1, round(68 * scale))
    pictures = {"Set12": gray(data, "Set12"), "BSD68": gray(data, "BSD68")[:count]}
    if scale is not None and scale < 0.1:
        pictures = {name: some[:2] for name, some in pictures.items()}
    table: list[dict[str, Any]] = []
    for name, task in TASKS.items():
        seconds = SECONDS.get(name, OTHERS) if scale is None else 600 * scale
        sets = {test: seen(task, some) for test, some in pictures.items()}
        known = {m: [] for m in METHODS}
        for m in METHODS:
            lr = cells.get(f"{name}: rate of {m}", partial(rate, task, m, images, seconds / 3))
            for s in numbers:
                make = partial(trial, task, m, images, seconds, lr, s, sets)
                known[m].append(cells.get(f"{name}: {m}, {s}", make))
        known["start"] = [{test: started(task, things) for test, things in sets.items()}]
        known["TV, best α"] = [cells.get(f"{name}: TV", partial(best, task, sets))]
        table += rows(name, known, tuple(sets))
    return page(table, list(numbers), scale, {name: len(some) for name, some in pictures.items()})


def best(task: Task, sets: dict[str, list[Seen]]) -> dict[str, Any]:
    """TV with the α that is best on three images of Set12 itself."""
    small = sets["Set12"][:SMALL]
    alpha = max(task.alphas, key=lambda a: mean(smoothed(task, a, small)["psnr"]))
    return {"alpha": alpha} | {name: smoothed(task, alpha, things) for name, things in sets.items()}


def page(
    table: list[dict[str, Any]], seeds: list[int], scale: float | None, counts: dict[str, int]
) -> dict[str, Any]:
    """The result."""
    trained = (
        f"{600 * scale:g} CPU s" if scale else f"{SECONDS['denoising']:g} (denoising) and {OTHERS:g} CPU s"
    )
    first = [row for row in table if row["test set"] == "Set12"]
    tasks = list(dict.fromkeys(row["task"] for row in first))
    told = [
        f"{task}: "
        + ", ".join(f"{row['method']} {row['PSNR']['mean']:.2f}" for row in first if row["task"] == task)
        for task in tasks
    ]
    return {
        "title": "Images restored by unrolled networks and by total variation",
        "source": "A Unified Framework for Lifted Training and Inversion Approaches (arXiv 2510.09796), "
        "imaging",
        "finding": "PSNR on Set12; " + "; ".join(told),
        "scale": f"{trained} of training on Train400, {BATCH} patches of {PATCH} × {PATCH} a batch; "
        + " and ".join(f"{count} images of {name}" for name, count in counts.items()),
        "seeds": seeds,
        "machine": machine(),
        "columns": list(table[0]),
        "rows": table,
        "notes": [
            "Denoising: σ = 25/255. Blurs: a Gaussian of 1.6 pixels and a line of 9 pixels at 30°, noise "
            "2/255. "
            "Inpainting: half of the pixels at random, and a square of 8 × 8 in every 32 × 32, no noise.",
            "Lifted: contrastive gradients whose states are found in one pass down (β = 0.01). "
            "Lifted training and back-propagation start from the same weights, see the same patches and "
            "have the "
            "same CPU seconds; each has the rate of two that is best on 6 training images held back. TV: "
            "the best α "
            "of three on three images of Set12 itself, 150 steps.",
            "PSNR, SSIM: mean over images and seeds, ± over images. By seed: ± over seeds. Start: where "
            "all start.",
        ],
    }
