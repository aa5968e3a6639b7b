"""One-shot pruning of a small ResNet-8, every method tuned alike (our question to Table 4.1)."""

import dataclasses
from functools import partial
from pathlib import Path

from torch import Tensor
from torch.nn.functional import avg_pool2d

from papers.common.arms import Row
from papers.common.cells import Cells
from papers.savarese_thesis.fair_table import Case, table
from papers.savarese_thesis.pruning_runs import Setting, fewer, sized
from torchlift.data import Splits, load
from torchlift.models import resnet

NAMES = ("dense", "CS", "CS of the source", "MP", "GMP", "IMP-C")


def case(data: str | None) -> Case:
    """Half the width and half the pixels; all convolutions but the 1×1 shortcuts."""
    few = 2000
    whole = fewer(load("cifar10", data), few, 2000)
    small = Splits(halved(whole.train), halved(whole.valid), halved(whole.test), whole.kind)
    title = f"ResNet-8 at half its width, {few} images of CIFAR-10 at 16×16 pixels"
    setting = Setting(title, partial(resnet, 8, width=8), small, 6.0, {}, "*conv*weight")
    return Case(setting, (0.9,), NAMES)


def halved(pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Images at half their resolution."""
    return avg_pool2d(pair[0], 2), pair[1]


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
    stand_in: bool = False,
) -> Row:
    """Six trials of each method, then three seeds of what was chosen."""
    del stand_in  # it is one
    small = case(data)
    small = dataclasses.replace(small, setting=sized(small.setting, epochs, images, device))
    cells = Cells(out / "one-shot-resnet.jsonl")
    return table("One-shot pruning", "Table 4.1", small, True, seeds or 3, cells)
