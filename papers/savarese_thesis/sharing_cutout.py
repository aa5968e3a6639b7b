"""Soft sharing on CIFAR-10 with cutout, beside architecture search (thesis Table 3.3)."""

from pathlib import Path

from papers.common.arms import Row
from papers.savarese_thesis.pruning_runs import whole
from papers.savarese_thesis.sharing_runs import Net, Order, table
from torchlift.data import crop_flip_cutout

NETS = {
    "WRN-28-10": Net(28, 10, thesis=3.08),
    "SWRN-28-4-2": Net(28, 4, 2, thesis=3.45),
    "SWRN-28-6-2": Net(28, 6, 2, thesis=3.00),
    "SWRN-28-10": Net(28, 10, 6, thesis=2.70),
    "SWRN-28-10-2": Net(28, 10, 2, thesis=2.69),
    "SWRN-28-14": Net(28, 14, 6, thesis=2.55),
    "SWRN-28-14-2": Net(28, 14, 2, thesis=2.53),
}


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
) -> Row:
    """Every network on every seed, with squares of 16 pixels cut out of the images."""
    order = Order(out, seeds or 1, epochs, images, device)
    title, splits = "Soft sharing on CIFAR-10 with cutout", whole("cifar10", data)
    return table("sharing-cutout", title, "Table 3.3", NETS, splits, order, augment=crop_flip_cutout)
