"""One-shot pruning of ResNet-8 on CIFAR-10, every method tuned alike (thesis Table 4.1, small)."""

from functools import partial
from pathlib import Path

from torch import Tensor
from torch.nn.functional import avg_pool2d

from papers.common.arms import Row
from papers.common.cells import Cells
from papers.savarese_thesis.fair_table import Case, table
from papers.savarese_thesis.pruning_runs import Setting, fewer
from torchlift.data import Splits, load
from torchlift.models import resnet

NAMES = ("dense", "CS", "CS of the source", "MP", "GMP", "IMP-C")


def case(scale: float, data: str | None) -> Case:
    """Half the width and half the pixels below full scale; all convolutions but the 1×1 shortcuts."""
    parts = load("cifar10", data)
    if scale >= 1:
        place = Setting("ResNet-8, CIFAR-10", partial(resnet, 8), parts, 100.0, {}, "*conv*weight")
        return Case(place, (0.9,), NAMES)
    few = max(500, round(20_000 * scale))
    parts = fewer(parts, few, 2000)
    small = Splits(halved(parts.train), halved(parts.valid), halved(parts.test), parts.kind)
    title = f"ResNet-8 at half its width, {few} images of CIFAR-10 at 16×16 pixels"
    place = Setting(title, partial(resnet, 8, width=8), small, 6.0, {}, "*conv*weight")
    return Case(place, (0.9,), NAMES)


def halved(pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Images at half their resolution."""
    return avg_pool2d(pair[0], 2), pair[1]


def run(
    out: Path = Path("runs/reproduce"), data: str | None = None, seeds: int = 3, scale: float = 0.1
) -> Row:
    """Six trials of each method, then three seeds of what was chosen."""
    cells = Cells(out / "one-shot-resnet.jsonl")
    return table("One-shot pruning", "Table 4.1", case(scale, data), scale, seeds, cells)
