"""Bits of activations: SMOL-A against PACT (thesis Table 5.5)."""

from functools import partial
from pathlib import Path

from papers.common.arms import Row
from papers.savarese_thesis.precision_runs import (
    Bench,
    Setting,
    as_record,
    digits,
    means,
    published,
    sgd,
    sized,
)
from torchlift.lifts import ActivationPrecision, Pact
from torchlift.recipes import Chain, Plain

THESIS = (
    "PACT 89.2 % at 2 bits, 91.4 % at 3; SMOL-A 90.3 % at 1.8, 91.4 % at 2.5, 91.8 % at 2.9; float 91.6 %"
)


def setting(full: bool, data: str | None) -> Setting:
    """ResNet-20 on CIFAR-10 for 650 epochs; the stand-in: a perceptron on digits for 120."""
    return published(data) if full else digits(120.0, **sgd(0.05, 1e-4, schedule="cosine"))


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
    stand_in: bool = False,
) -> Row:
    """Activations of a trained network: PACT at 2 and 3 bits; SMOL-A at several strengths; equal cost."""
    full = not stand_in
    training = sized(setting(full, data), epochs, images, device)
    bench = Bench.at(training, out, "smol-activations")
    after = partial(Chain, shares={"float": 1, "bits": 1})
    noisy = partial(ActivationPrecision, granularity="unit", p_init=4.0)
    ways = {
        "float": None,
        **{f"PACT, {b} bits": after({"float": Plain(), "bits": Pact(bits=b)}) for b in (1, 2, 3)},
        **{
            f"SMOL-A, strength {s:g}": after({"float": Plain(), "bits": noisy(strength=s)})
            for s in (1e-4, 1e-3, 1e-2)
        },
    }
    rows = bench.runs(ways, seeds or 3)
    columns = ("method", "activation bits", "accuracy")
    table = means(rows, columns)
    said = ", ".join(
        f"{row['method']} {100 * row['accuracy']['mean']:.1f} %"
        + (f" at {row['activation bits']['mean']:.2f}" if "activation bits" in row else "")
        for row in table
    )
    return as_record(
        "Bits of activations", "Table 5.5", training, full, rows, finding=f"{said}.", rows=table,
        columns=list(columns),
        notes=[
            f"The thesis, ResNet-20: {THESIS}.",
        ],
    )  # fmt: skip
