"""Learned precision on networks that are small already: MobileNetV2 and ShuffleNet (thesis Table 5.2)."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from papers.common.arms import Row
from papers.common.protocol import protocol, thinned
from papers.savarese_thesis.precision_runs import (
    Bench,
    Setting,
    as_record,
    fewer,
    means,
    published,
    sgd,
    sized,
    sizes,
    under_one_schedule,
)
from torchlift.data import crop_flip, load
from torchlift.models import mobilenet, shufflenet
from torchlift.recipes import Bsq, Chain, Plain, Smol

SMALL = {
    "MobileNetV2": partial(
        mobilenet, ((1, 8, 1, 1), (3, 12, 2, 2), (3, 24, 2, 2), (3, 32, 1, 1)), stem=8, head=96, stride=2
    ),
    "ShuffleNet": partial(shufflenet, (48, 96), (2, 2), stem=16, stride=2),
}
PUBLISHED = protocol("savarese_thesis", "Table 5.2")
PRICES = {"MobileNetV2": (1e-7, 2e-7), "ShuffleNet": (5e-8, 7e-10)}
LARGE = {"MobileNetV2": mobilenet, "ShuffleNet": shufflenet}
BITS = {"MobileNetV2": (1.5, 1.7), "ShuffleNet": (1.8, 2.9)}
THESIS = {
    "MobileNetV2": {"float": "94.4 %", "BSQ": "94.1 % at 2.8", "SMOL, 1.5": "94.5 %", "SMOL, 1.7": "94.8 %"},
    "ShuffleNet": {"float": "90.7 %", "BSQ": "91.8 % at 3.4", "SMOL, 1.8": "91.6 %", "SMOL, 2.9": "92.0 %"},
}
SHARES = (0.25, 0.5, 0.75)
"""Trials: of SMOL, the part of the budget for fine-tuning; of BSQ, that for the network it starts from."""


def setting(name: str, full: bool, data: str | None) -> Setting:
    """All of CIFAR-10 for 650 epochs, or a network of a hundredth of the size on 3,000 images."""
    if full:
        return published(data, LARGE[name], name, PUBLISHED)
    fit = sgd(0.1, 1e-4, 128, schedule="cosine", augment=crop_flip)
    small = fewer(load("cifar10", data), 3000, 2000)
    return Setting(f"narrow {name}, 3,000 images of CIFAR-10", SMALL[name], small, 10.0, fit)


def ways(name: str, full: bool) -> dict[str, Callable[[float], Any]]:
    """The recipe of each method at one of the shares."""
    bsq = Bsq(strength=5e-3 if full else 1.0)  # without a target, as in the source

    def planes(share: float) -> Any:
        return Chain({"float": Plain(), "bits": bsq}, shares={"float": share, "bits": 1 - share})

    return {"BSQ": planes} | {
        f"SMOL, {bits}": lambda share, bits=bits: Smol(bits=bits, finetune=share) for bits in BITS[name]
    }


def as_published(name: str, training: Setting, seeds: int, out: Path) -> list[Row]:
    """Float, BSQ, and SMOL by the thesis' two λ, 300 of 650 epochs to fine-tune."""
    bench = Bench.at(training, out, f"smol-mobile-{name}")
    recipes: dict[str, Any] = {"float": None, "BSQ": ways(name, True)["BSQ"](0.5)} | {
        f"SMOL, {price:g}": under_one_schedule(Smol(strength=price, finetune=300 / 650))
        for price in thinned(PRICES[name], training.share)
    }
    return [row | {"method": f"{name}: {row['method']}", "share": None} for row in bench.runs(recipes, seeds)]


def side_by_side(name: str, training: Setting, full: bool, seeds: int, out: Path) -> list[Row]:
    """Float, BSQ, and SMOL at the thesis' two sizes; each method with the best of three shares."""
    if full:
        return as_published(name, training, seeds, out)
    bench, makers = Bench.at(training, out, f"smol-mobile-{name}"), ways(name, full)
    tuned = {
        way: bench.best(way, make, SHARES) for way, make in makers.items() if way != f"SMOL, {BITS[name][0]}"
    }
    shares = tuned | {f"SMOL, {BITS[name][0]}": tuned[f"SMOL, {BITS[name][1]}"]}
    recipes = {"float": None} | {way: make(shares[way]) for way, make in makers.items()}
    return [
        row | {"method": f"{name}: {row['method']}", "share": shares.get(row["method"])}
        for row in bench.runs(recipes, seeds)
    ]


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
    stand_in: bool = False,
) -> Row:
    """Both networks, both methods and the float network, at equal cost."""
    full = not stand_in
    trainings = {name: sized(setting(name, full, data), epochs, images, device) for name in THESIS}
    rows = [
        row
        for name, training in trainings.items()
        for row in side_by_side(name, training, full, seeds or 3, out)
    ]
    table: list[Row] = [
        row | {"thesis": THESIS[net].get(way)}
        for row in means(rows)
        for net, way in [row["method"].split(": ")]
    ]
    said = "; ".join(
        f"{row['method']} {100 * row['accuracy']['mean']:.1f} ± {100 * row['accuracy']['sd']:.1f} % "
        f"at {row['bits']['mean']:.1f} bits in {row['file bytes']['mean'] / 1000:.1f} kB"
        for row in table
    )
    both = "; ".join(f"{training.title}, {training.epochs:g} epochs" for training in trainings.values())
    return as_record(
        "Learned precision", "Table 5.2", next(iter(trainings.values())), full, rows,
        finding=f"{said}.", rows=table, sizes=sizes(table),
        columns=["method", "bits", "file bytes", "accuracy", "thesis"],
        notes=[
            *([] if full else ["Narrow networks of the same blocks stand in for the thesis' own."]),
            "The thesis' column: test accuracy, BSQ's with its bits.",
        ],
    ) | {
        "title": "Learned precision on MobileNetV2 and ShuffleNet",
        "scale": both,
    }  # fmt: skip
