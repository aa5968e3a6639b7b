"""Learned precision on networks that are small already: MobileNetV2 and ShuffleNet (thesis Table 5.2)."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from papers.common.arms import Row
from papers.savarese_thesis.mobile_nets import mobilenet, shufflenet
from papers.savarese_thesis.precision_runs import Bench, Setting, fewer, means, sgd, sizes, told
from torchlift.data import crop_flip, load
from torchlift.recipes import Bsq, Chain, Plain, Smol

SMALL = {
    "MobileNetV2": partial(
        mobilenet, ((1, 8, 1, 1), (3, 12, 2, 2), (3, 24, 2, 2), (3, 32, 1, 1)), stem=8, head=96, stride=2
    ),
    "ShuffleNet": partial(shufflenet, (48, 96), (2, 2), stem=16, stride=2),
}
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
    fit = sgd(0.1, 1e-4, 128, schedule="cosine", augment=crop_flip)
    images = load("cifar10", data)
    if full:
        return Setting(f"{name}, CIFAR-10", LARGE[name], images, 650.0, fit)
    small = fewer(images, 3000, 2000)
    return Setting(f"narrow {name}, 3,000 images of CIFAR-10", SMALL[name], small, 10.0, fit)


def ways(name: str, full: bool) -> dict[str, Callable[[float], Any]]:
    """The recipe of each method at one of the shares."""
    bsq = Bsq(strength=5e-3 if full else 1.0)  # without a target, as in the source

    def planes(share: float) -> Any:
        return Chain({"float": Plain(), "bits": bsq}, shares={"float": share, "bits": 1 - share})

    return {"BSQ": planes} | {
        f"SMOL, {bits}": lambda share, bits=bits: Smol(bits=bits, finetune=share) for bits in BITS[name]
    }


def side_by_side(name: str, place: Setting, full: bool, seeds: int, out: Path) -> list[Row]:
    """Float, BSQ, and SMOL at the thesis' two sizes; each method with the best of three shares."""
    bench, made = Bench.at(place, out, f"smol-mobile-{name}"), ways(name, full)
    tuned = {
        way: bench.best(way, make, SHARES) for way, make in made.items() if way != f"SMOL, {BITS[name][0]}"
    }
    shares = tuned | {f"SMOL, {BITS[name][0]}": tuned[f"SMOL, {BITS[name][1]}"]}
    recipes = {"float": None} | {way: make(shares[way]) for way, make in made.items()}
    return [
        row | {"method": f"{name}: {row['method']}", "share": shares.get(row["method"])}
        for seed in range(seeds)
        for row in (bench.run(way, recipe, seed) for way, recipe in recipes.items())
    ]


def run(out: Path, data: str | None = None, seeds: int | None = None, scale: float | None = None) -> Row:
    """Both networks, both methods and the float network, at equal cost."""
    full = scale is not None and scale >= 1
    places = {name: setting(name, full, data) for name in THESIS}
    rows = [row for name, place in places.items() for row in side_by_side(name, place, full, seeds or 3, out)]
    table: list[Row] = [
        row | {"thesis": THESIS[net][way]} for row in means(rows) for net, way in [row["method"].split(": ")]
    ]
    said = "; ".join(
        f"{row['method']} {100 * row['accuracy']['mean']:.1f} ± {100 * row['accuracy']['sd']:.1f} % "
        f"at {row['bits']['mean']:.1f} bits in {row['file bytes']['mean'] / 1000:.1f} kB"
        for row in table
    )
    both = "; ".join(f"{place.title}, {place.epochs:g} epochs" for place in places.values())
    return told(
        "Learned precision", "Table 5.2", next(iter(places.values())), full, rows,
        finding=f"{said}.", rows=table, sizes=sizes(table),
        columns=["method", "bits", "file bytes", "accuracy", "thesis"],
        notes=[
            *([] if full else ["Narrow networks of the same blocks stand in for the thesis' own."]),
            "The thesis' column: test accuracy, BSQ's with its bits.",
        ],
    ) | {
        "title": "Learned precision on MobileNetV2 and ShuffleNet",
        "scale": "full scale" if full else f"small scale: {both}",
    }  # fmt: skip
