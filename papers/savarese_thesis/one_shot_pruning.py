"""One-shot pruning of LeNet-5, every method tuned alike (thesis Figures 4.1–4.2, Table 4.1)."""

from functools import partial
from pathlib import Path

from papers.common.arms import Row
from papers.common.cells import Cells
from papers.savarese_thesis.fair_table import METHODS, Case, table
from papers.savarese_thesis.pruning_runs import Setting, digits, fewer, resnet20
from torchlift.data import load
from torchlift.models import LeNet5

PAPER = {"ℓ₀": 0.136, "MP": 0.80, "GMP": 0.86, "slimming": 0.85, "CS": 0.944}  # Table 4.1, ResNet-20


def case(scale: float, data: str | None) -> Case:
    """ResNet-20 on CIFAR-10 for 200 epochs in full; LeNet-5 on part of MNIST, or a perceptron on digits."""
    if scale >= 1:
        return Case(resnet20(200.0, data), (0.9, 0.95), tuple(METHODS))
    if scale < 0.05:
        return Case(digits(20.0), (0.95, 0.98), tuple(METHODS))
    few = max(1000, round(30_000 * scale))
    title = f"LeNet-5, {few} images of MNIST"
    parts = fewer(load("mnist", data), few, 3000)
    place = Setting(title, partial(LeNet5, (1, 28, 28)), parts, 5.0, {})
    return Case(place, (0.95,), tuple(METHODS))


def run(
    out: Path = Path("runs/reproduce"), data: str | None = None, seeds: int = 3, scale: float = 0.3
) -> Row:
    """Six trials of each method, then three seeds of what was chosen."""
    cells = Cells(out / "one-shot-pruning.jsonl")
    return table(
        "One-shot pruning", "Figures 4.1–4.2, Table 4.1", case(scale, data), scale, seeds, cells, paper=PAPER
    )
