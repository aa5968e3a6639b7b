"""Bits of activations: SMOL-A against PACT (thesis Table 5.5)."""

from functools import partial
from pathlib import Path

from papers.common.arms import Row
from papers.savarese_thesis.precision_runs import Bench, Setting, digits, means, sgd, told
from torchlift.data import crop_flip, load
from torchlift.lifts import ActivationPrecision, Pact
from torchlift.models import Conv6
from torchlift.recipes import Chain, Plain

THESIS = (
    "PACT 89.2 % at 2 bits, 91.4 % at 3; SMOL-A 90.3 % at 1.8, 91.4 % at 2.5, 91.8 % at 2.9; float 91.6 %"
)


def setting(full: bool, data: str | None) -> Setting:
    """Conv-6 on CIFAR-10 for 300 epochs, or a perceptron on digits for 120; both have ReLUs as modules."""
    if not full:
        return digits(120.0, **sgd(0.05, 1e-4, schedule="cosine"))
    fit = sgd(0.05, 1e-4, 128, schedule="cosine", augment=crop_flip)
    return Setting("Conv-6, CIFAR-10", Conv6, load("cifar10", data), 300.0, fit)


def run(out: Path, data: str | None = None, seeds: int | None = None, scale: float | None = None) -> Row:
    """Activations of a trained network: PACT at 2 and 3 bits; SMOL-A at several strengths; equal cost."""
    full = scale is not None and scale >= 1
    place = setting(full, data)
    bench = Bench.at(place, out, "smol-activations")
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
    rows = [bench.run(name, way, seed) for seed in range(seeds or 3) for name, way in ways.items()]
    columns = ("method", "activation bits", "accuracy")
    table = means(rows, columns)
    said = ", ".join(
        f"{row['method']} {100 * row['accuracy']['mean']:.1f} %"
        + (f" at {row['activation bits']['mean']:.2f}" if "activation bits" in row else "")
        for row in table
    )
    return told(
        "Bits of activations", "Table 5.5", place, full, rows, finding=f"{said}.", rows=table,
        columns=list(columns),
        notes=[
            f"The thesis, ResNet-20: {THESIS}. ResNet-20 here calls its ReLUs as functions, which cannot be "
            "lifted; Conv-6 stands in for it at full scale.",
        ],
    )  # fmt: skip
