"""Accuracy against file size: SMOL, LSQ, BSQ and uniform weights (thesis Table 5.1, Figures 5.3 and 5.6)."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from papers.common.arms import Row, selected_arms, without_arms
from papers.common.protocol import thinned
from papers.savarese_thesis.precision_runs import (
    Bench,
    after_training,
    as_record,
    lenet,
    means,
    published,
    sized,
    sizes,
    under_one_schedule,
)
from torchlift.lifts import DoReFa, LearnedStep
from torchlift.methods.precision.precision import Granularity
from torchlift.recipes import Bsq, Smol

METHODS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...], Callable[[Any, Any], Any]]] = {
    # the three trials, the sizes, and the recipe of a trial at a size
    "SMOL": (("weight", "channel", "tensor"), (1.0, 2.0), lambda g, b: Smol(bits=b, granularity=g)),
    "LSQ": ((0.25, 0.5, 0.75), (2, 3), lambda share, b: after_training(LearnedStep(bits=b), share)),
    "uniform": ((0.25, 0.5, 0.75), (2, 3), lambda share, b: after_training(DoReFa(bits=b), share)),
    "BSQ": ((0.25, 0.5, 0.75), (0.3, 0.1), lambda share, s: Bsq(strength=s, finetune=share)),
}
KINDS: dict[str, Granularity] = {"SMOL": "weight", "SMOL-L": "tensor"}
THESIS = "92.5 % at 2.1 bits (SMOL), 92.6 % at 1.7 (with zeros), 91.9 % at 2.7 (BSQ), 92.6 % in float"


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
    stand_in: bool = False,
    arms: str | None = None,
) -> Row:
    """Three trials for every method at its larger size, then every size on every seed, at equal cost."""
    full = not stand_in
    setting = sized(published(data) if full else lenet(10_000, 10.0, data), epochs, images, device)
    bench, chosen = Bench.at(setting, out, "smol-cifar10"), dict[str, Any]()
    ways = as_published(setting.share, setting.where) if full else {}
    if not full:
        for name, (trials, bits, make) in METHODS.items():
            chosen[name] = bench.best(
                name, lambda trial, make=make, large=bits[-1]: make(trial, large), trials
            )
            ways |= {f"{name}, {size:g}": make(chosen[name], size) for size in bits}
    ways = {"float": None} | ways
    chosen_ways = {name: ways[name] for name in selected_arms(ways, arms)}
    rows = bench.runs(chosen_ways, seeds or 3)
    table = means(rows)
    return as_record(
        "Learned precision", "Table 5.1, Figures 5.3 and 5.6", setting, full, rows,
        finding=finding(table), sizes=sizes(table), curves=layers(rows), x_label="layer", chosen=chosen,
        notes=[f"The thesis, ResNet-20, 650 epochs: {THESIS}.", "Curves: bits per weight by layer."],
        **without_arms(ways, chosen_ways),
    )  # fmt: skip


def as_published(share: float, where: str) -> dict[str, Any]:
    """SMOL by its three λ, per weight and per layer, 300 of 650 epochs to fine-tune; BSQ; LSQ."""
    tail, prices = 300 / 650, thinned((1e-6, 7e-7, 5e-7), share)
    learned = {
        f"{name}, {price:g}": under_one_schedule(
            Smol(strength=price, where=where, finetune=tail, granularity=kind)
        )
        for name, kind in KINDS.items()
        for price in prices
    }
    return learned | {
        "BSQ": after_training(Bsq(where=where, strength=5e-3), 0.5),
        "LSQ, 2": after_training(LearnedStep(where=where, bits=2), 0.5),
    }  # fmt: skip


def finding(table: Sequence[Row]) -> str:
    """Accuracy at the size of the file."""
    said = (
        f"{row['method']}: {100 * row['accuracy']['mean']:.1f} ± {100 * row['accuracy']['sd']:.1f} % "
        f"in {row['file bytes']['mean'] / 1000:.1f} kB"
        for row in table
    )
    return "; ".join(said) + "."


def layers(rows: Sequence[Row]) -> list[Row]:
    """Bits by layer of the first seed's quantized networks, in the order of the layers."""
    first = [row for row in rows if row["seed"] == rows[0]["seed"] and row["method"] != "float"]
    return [
        {
            "name": row["method"],
            "x": list(range(1, 1 + len(row["layers"]))),
            "y": list(row["layers"].values()),
        }
        for row in first
    ]
