"""Denoising, deblurring, inpainting: unrolled networks, lifted and by back-propagation, beside TV."""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from papers.common.arms import difference, machine, spread
from papers.common.cells import Cells
from papers.common.sheet import Pixels, pixels, sheet
from papers.unified_lifting.observing import TASKS, ImagingTask, Pair, quality, variation
from papers.unified_lifting.unrolled_training import BATCH, LOOKS, PATCH, train
from torchlift.convex.operators import Operator
from torchlift.data.images import gray
from torchlift.methods.lifted import UnrolledNet

METHODS = ("lifted", "backprop")
RATES = (1e-3, 3e-3)
SECONDS, STEPS, SET, BSD = 10.0, 150, 7, 3
"""CPU seconds of a training, steps of TV beside it, and how many images of each test set."""
TUNING_SEED, TUNING_IMAGES, SMALL = 100, 4, 2
SHOWN, CROP = 4, 96
"""Which image of Set12 is drawn, and how much of it."""
Seen = tuple[Tensor, Operator, Tensor]


def seen(task: ImagingTask, images: Sequence[Tensor], seed: int = 1) -> list[Seen]:
    """(observation, operator, truth) of every image, each 1 × 1 × h × w."""
    generator = torch.Generator().manual_seed(seed)
    clean = [image[None, None].float() / 255 for image in images]
    return [(*task.observe(x, generator), x) for x in clean]


def by_network(task: ImagingTask, net: UnrolledNet, things: Sequence[Seen]) -> list[Pair]:
    """What a network makes of them, beside the truth."""
    pairs: list[Pair] = []
    with torch.no_grad():
        for y, operator, x in things:
            net.operator = operator
            pairs.append((task.kept(net(y), y, operator), x))
    return pairs


def smoothed(task: ImagingTask, alpha: float, things: Sequence[Seen], steps: int = STEPS) -> list[Pair]:
    """What total variation makes of them."""
    return [(task.kept(variation(task, alpha, y, a, steps), y, a), x) for y, a, x in things]


def started(task: ImagingTask, things: Sequence[Seen]) -> list[Pair]:
    """Where all methods start."""
    fill = task.fill or (lambda y, operator: operator.A_adjoint(y))
    return [(task.kept(fill(y, a), y, a), x) for y, a, x in things]


def scores(pairs: dict[str, list[Pair]]) -> dict[str, Any]:
    """PSNR and SSIM by test set, and a piece of one image."""
    some = next(iter(pairs.values()))
    return {name: quality(one) for name, one in pairs.items()} | {"pixels": crop(some[SHOWN % len(some)][0])}


def crop(image: Tensor) -> Pixels:
    """A square from the middle."""
    top, left = ((size - min(CROP, size)) // 2 for size in image.shape[-2:])
    return pixels(image[..., top : top + CROP, left : left + CROP])


def mean(values: Sequence[float]) -> float:
    """The mean."""
    return sum(values) / len(values)


def rate(task: ImagingTask, method: str, images: Sequence[Tensor], seconds: float) -> float:
    """The learning rate that is best on held-back training images after short trainings."""
    validation, rest = seen(task, images[-TUNING_IMAGES:], 2), images[:-TUNING_IMAGES]

    def score(lr: float) -> float:
        net = train(task, method, rest, seconds, lr, TUNING_SEED)[0]
        return mean(quality(by_network(task, net, validation))["psnr"])

    return max(RATES, key=score)


def trial(
    task: ImagingTask, method: str, images: Sequence[Tensor], seconds: float, lr: float, seed: int, sets: Any
) -> dict[str, Any]:
    """One training; PSNR and SSIM of every test image, and PSNR of held-back images on the way."""
    validation = seen(task, images[-TUNING_IMAGES:], 2)

    def look(net: UnrolledNet) -> float:
        return mean(quality(by_network(task, net, validation))["psnr"])

    net, steps, curve = train(task, method, images[:-TUNING_IMAGES], seconds, lr, seed, look)
    pairs = {name: by_network(task, net, things) for name, things in sets.items()}
    return {"steps": steps, "lr": lr, "curve": curve} | scores(pairs)


def rows(name: str, results: dict[str, Any], tests: Sequence[str]) -> list[dict[str, Any]]:
    """One line for each method and test set; differences to lifted training are paired by seed."""
    table: list[dict[str, Any]] = []
    for test in tests:
        means = {m: [mean(one[test]["psnr"]) for one in results[m]] for m in METHODS}
        for m in ("start", "TV, best α", *METHODS):
            runs = results[m]
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
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
) -> dict[str, Any]:
    """Five tasks; ``epochs`` are CPU seconds of a training, ``images`` those of each set."""
    torch.set_num_threads(1)
    numbers = range(seeds or 3)
    cells = Cells(Path(out) / "imaging" / f"cells-{epochs or 0:g}-{images or 0}.jsonl")
    clean = gray(data, "Train400")[: None if images is None else TUNING_IMAGES + images]
    pictures = {
        "Set12": gray(data, "Set12")[: min(images or SET, SET)],
        "BSD68": gray(data, "BSD68")[: min(images or BSD, BSD)],
    }
    seconds = epochs or SECONDS
    steps = math.ceil(STEPS * min(1.0, seconds / SECONDS))
    table, curves, shown = list[dict[str, Any]](), list[dict[str, Any]](), list[list[Pixels]]()
    for name, task in TASKS.items():
        sets = {test: seen(task, some) for test, some in pictures.items()}
        results: dict[str, list[dict[str, Any]]] = {
            "start": [scores({test: started(task, things) for test, things in sets.items()})],
            "TV, best α": [cells.get(f"{name}: TV", partial(best, task, sets, steps))],
        }
        for m in METHODS:
            lr = cells.get(f"{name}: rate of {m}", partial(rate, task, m, clean, seconds / 5))
            results[m] = [
                cells.get(f"{name}: {m}, {s}", partial(trial, task, m, clean, seconds, lr, s, sets))
                for s in numbers
            ]
            curves.append(curve(name, m, results[m], seconds))
        table += rows(name, results, tuple(sets))
        truth = crop(sets["Set12"][SHOWN % len(sets["Set12"])][2])
        shown.append([truth, *(results[m][0]["pixels"] for m in results)])
    counts = {name: len(some) for name, some in pictures.items()}
    pieces = sheet("truth, start, TV, lifted, back-propagation; a line for each task", shown)
    return page(table, list(numbers), seconds, steps, counts) | {"curves": curves, "images": [pieces]}


def curve(name: str, method: str, runs: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """PSNR of the held-back images on the way, the mean of all seeds."""
    return {
        "name": method,
        "panel": name,
        "x": [seconds * (k + 1) / LOOKS for k in range(LOOKS)],
        "y": [mean(some) for some in zip(*(one["curve"] for one in runs), strict=True)],
    }


def best(task: ImagingTask, sets: dict[str, list[Seen]], steps: int) -> dict[str, Any]:
    """TV with the α that is best on the first images of Set12 itself."""
    small = sets["Set12"][:SMALL]
    alpha = max(task.alphas, key=lambda a: mean(quality(smoothed(task, a, small, steps))["psnr"]))
    pairs = {name: smoothed(task, alpha, things, steps) for name, things in sets.items()}
    return {"alpha": alpha} | scores(pairs)


def page(
    table: list[dict[str, Any]], seeds: list[int], seconds: float, steps: int, counts: dict[str, int]
) -> dict[str, Any]:
    """The result."""
    first = [row for row in table if row["test set"] == "Set12"]
    tasks = list(dict.fromkeys(row["task"] for row in first))
    words = [
        f"{task}: "
        + ", ".join(f"{row['method']} {row['PSNR']['mean']:.2f}" for row in first if row["task"] == task)
        for task in tasks
    ]
    return {
        "title": "Images restored by unrolled networks and by total variation",
        "source": "A Unified Framework for Lifted Training and Inversion Approaches (arXiv 2510.09796), "
        "imaging",
        "finding": "PSNR on Set12; " + "; ".join(words),
        "scale": f"{seconds:g} CPU s of training on Train400, {BATCH} patches of {PATCH} × {PATCH} a batch; "
        + " and ".join(f"{count} images of {name}" for name, count in counts.items()),
        "seeds": seeds,
        "machine": machine(),
        "columns": list(table[0]),
        "rows": table,
        "x_label": "CPU seconds of training",
        "notes": [
            "Denoising: σ = 25/255. Blurs: a Gaussian of 1.6 pixels and a line of 9 pixels at 30°, noise "
            "2/255. "
            "Inpainting: half of the pixels at random, and a square of 8 × 8 in every 32 × 32, no noise.",
            "Lifted: contrastive gradients whose states are found in one pass down (β = 0.01). "
            "Lifted training and back-propagation start from the same weights, see the same patches and "
            f"have the same CPU seconds; each has the rate of two that is best on {TUNING_IMAGES} training "
            f"images held back. TV: the best α of three on {SMALL} images of Set12 itself, {steps} steps.",
            f"PSNR, SSIM: mean over images and seeds, ± over images. By seed: ± over seeds. Start: where "
            f"all start. Curves: PSNR of the {TUNING_IMAGES} images held back; the rate falls to 0 at "
            "the end.",
        ],
    }
