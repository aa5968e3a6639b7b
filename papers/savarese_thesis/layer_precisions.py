"""Which layers get many bits: one precision a layer at three prices (thesis Figure 5.6)."""

from functools import partial
from pathlib import Path
from statistics import fmean

from papers.common.arms import Row
from papers.common.protocol import thinned
from papers.savarese_thesis.precision_runs import (
    Bench,
    Setting,
    as_record,
    fewer,
    means,
    published,
    sgd,
    sized,
    under_one_schedule,
)
from torchlift.data import crop_flip, load
from torchlift.models import resnet
from torchlift.recipes import Smol

PRICES = (1e-7, 1e-6, 1e-5)
"""λ of the stand-in; the thesis has three between 5e-7 and 1e-6."""


def setting(full: bool, data: str | None) -> Setting:
    """ResNet-20 for 650 epochs, or one of eight layers and half the width on 3,000 images."""
    if full:
        return published(data)
    fit = sgd(0.1, 1e-4, 128, schedule="cosine", augment=crop_flip)
    images = fewer(load("cifar10", data), 3000, 2000)
    return Setting("ResNet-8 of width 8, 3,000 images of CIFAR-10", partial(resnet, 8, 8), images, 10.0, fit)


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
    stand_in: bool = False,
) -> Row:
    """SMOL with a precision per layer at each price; bits by layer, in the order of the layers."""
    full = not stand_in
    training = sized(setting(full, data), epochs, images, device)
    bench = Bench.at(training, out, "layer-precisions")
    ways = {f"price {price:g}": Smol(granularity="tensor", strength=price) for price in PRICES}
    if full:
        learned = partial(Smol, where=training.where, granularity="tensor", finetune=300 / 650)
        prices = thinned((5e-7, 7e-7, 1e-6), training.share)
        ways = {f"price {price:g}": under_one_schedule(learned(strength=price)) for price in prices}
    rows = bench.runs(ways, seeds or 3)
    layers = {name: by_layer([row for row in rows if row["method"] == name]) for name in ways}
    said = "; ".join(
        f"{name}: first {bits[0]:.1f}, those between {fmean(bits[1:-1]):.1f}, last {bits[-1]:.1f}"
        for name, bits in layers.items()
    )
    return as_record(
        "Bits by layer", "Figure 5.6", training, full, rows, finding=f"Bits: {said}.", rows=means(rows),
        curves=[{"name": name, "x": list(range(1, 1 + len(b))), "y": b} for name, b in layers.items()],
        x_label="layer", y_label="bits", layers=list(rows[0]["layers"]),
        **{
            "first layer": fmean(bits[0] for bits in layers.values()),
            "last layer": fmean(bits[-1] for bits in layers.values()),
            "layers between": fmean(fmean(bits[1:-1]) for bits in layers.values()),
        },
        notes=["The thesis: the first convolution and the last layer get most bits, later stages few."],
    )  # fmt: skip


def by_layer(rows: list[Row]) -> list[float]:
    """The mean over seeds of each layer's bits."""
    return [fmean(row["layers"][name] for row in rows) for name in rows[0]["layers"]]
