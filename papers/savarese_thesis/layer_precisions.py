"""Which layers get many bits: one precision a layer at three prices (thesis Figure 5.6)."""

from functools import partial
from pathlib import Path
from statistics import fmean

from papers.common.arms import Row
from papers.savarese_thesis.precision_runs import Bench, Setting, fewer, means, resnet20, sgd, told
from torchlift.data import crop_flip, load
from torchlift.models import resnet
from torchlift.recipes import Smol

PRICES = (1e-7, 1e-6, 1e-5)
"""λ at the small scale; the full one has the thesis' 7e-7 in the middle."""


def setting(full: bool, data: str | None) -> Setting:
    """ResNet-20 for 650 epochs, or one of eight layers and half the width on 3,000 images."""
    if full:
        return resnet20(650.0, data)
    fit = sgd(0.1, 1e-4, 128, schedule="cosine", augment=crop_flip)
    images = fewer(load("cifar10", data), 3000, 2000)
    return Setting("ResNet-8 of width 8, 3,000 images of CIFAR-10", partial(resnet, 8, 8), images, 10.0, fit)


def run(out: Path, data: str | None = None, seeds: int | None = None, scale: float | None = None) -> Row:
    """SMOL with a precision per layer at each price; bits by layer, in the order of the layers."""
    full = scale is not None and scale >= 1
    place = setting(full, data)
    bench = Bench.at(place, out, "layer-precisions")
    ways = {
        f"price {price:g}": Smol(granularity="tensor", strength=price)
        for price in ((3e-7, 7e-7, 2e-6) if full else PRICES)
    }
    rows = [bench.run(name, way, seed) for seed in range(seeds or 3) for name, way in ways.items()]
    layers = {name: by_layer([row for row in rows if row["method"] == name]) for name in ways}
    said = "; ".join(
        f"{name}: first {bits[0]:.1f}, those between {fmean(bits[1:-1]):.1f}, last {bits[-1]:.1f}"
        for name, bits in layers.items()
    )
    return told(
        "Bits by layer", "Figure 5.6", place, full, rows, finding=f"Bits: {said}.", rows=means(rows),
        curves=[{"name": name, "x": list(range(1, 1 + len(b))), "y": b} for name, b in layers.items()],
        x_label="layer", y_label="bits", layers=list(rows[0]["layers"]),
        notes=["The thesis: the first convolution and the last layer get most bits, later stages few."],
    )  # fmt: skip


def by_layer(rows: list[Row]) -> list[float]:
    """The mean over seeds of each layer's bits."""
    return [fmean(row["layers"][name] for row in rows) for name in rows[0]["layers"]]
