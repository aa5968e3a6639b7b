"""Accuracy against file size: SMOL, LSQ, BSQ and uniform weights (thesis Table 5.1, Figures 5.3 and 5.6)."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from papers.common.arms import Row
from papers.savarese_thesis.precision_runs import (
    Bench,
    after_training,
    lenet,
    means,
    resnet20,
    sizes,
    told,
)
from torchlift.lifts import DoReFa, LearnedStep
from torchlift.recipes import Bsq, Smol

METHODS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...], Callable[[Any, Any], Any]]] = {
    # the three trials, the sizes, and the recipe of a trial at a size
    "SMOL": (("weight", "channel", "tensor"), (1.0, 2.0), lambda g, b: Smol(bits=b, granularity=g)),
    "LSQ": ((0.25, 0.5, 0.75), (2, 3), lambda share, b: after_training(LearnedStep(bits=b), share)),
    "uniform": ((0.25, 0.5, 0.75), (2, 3), lambda share, b: after_training(DoReFa(bits=b), share)),
    "BSQ": ((0.25, 0.5, 0.75), (0.3, 0.1), lambda share, s: Bsq(strength=s, finetune=share)),
}
THESIS = "92.5 % at 2.1 bits (SMOL), 92.6 % at 1.7 (with zeros), 91.9 % at 2.7 (BSQ), 92.6 % in float"


def run(out: Path, data: str | None = None, seeds: int | None = None, scale: float | None = None) -> Row:
    """Three trials for every method at its larger size, then every size on every seed, at equal cost."""
    full = scale is not None and scale >= 1
    setting = resnet20(650.0, data) if full else lenet(10_000, 10.0, data)
    bench = Bench.at(setting, out, "smol-cifar10")
    chosen = {
        name: bench.best(name, lambda trial, make=make, large=large[-1]: make(trial, large), trials)
        for name, (trials, large, make) in METHODS.items()
    }
    rows: list[Row] = []
    for seed in range(seeds or 3):
        rows.append(bench.run("float", None, seed))
        for name, (_, sizes_, make) in METHODS.items():
            rows += [bench.run(f"{name}, {size:g}", make(chosen[name], size), seed) for size in sizes_]
    table = means(rows)
    return told(
        "Learned precision", "Table 5.1, Figures 5.3 and 5.6", setting, full, rows,
        finding=finding(table), sizes=sizes(table), curves=layers(rows), x_label="layer", chosen=chosen,
        notes=[f"The thesis, ResNet-20, 650 epochs: {THESIS}.", "Curves: bits per weight by layer."],
    )  # fmt: skip


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
