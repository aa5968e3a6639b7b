"""Soft sharing on CIFAR-100 (thesis Table 3.2, Figure 3.4)."""

from pathlib import Path

from papers.common.arms import Row
from papers.savarese_thesis.pruning_runs import whole
from papers.savarese_thesis.sharing_runs import Net, Order, table

NETS = {
    "WRN-28-10": Net(28, 10, thesis=19.25),
    "WRN-28-10, dropout": Net(28, 10, dropout=0.3, thesis=18.85),
    "SWRN-28-10-1": Net(28, 10, 1, thesis=19.73),
    "SWRN-28-10-2, dropout": Net(28, 10, 2, 0.3, 18.66),
    "SWRN-28-10": Net(28, 10, 6, thesis=18.78),
    "SWRN-28-10, dropout": Net(28, 10, 6, 0.3, 18.43),
    "SWRN-28-14-2, dropout": Net(28, 14, 2, 0.3, 18.37),
    "SWRN-28-14, dropout": Net(28, 14, 6, 0.3, 18.25),
    "SWRN-28-18-2, dropout": Net(28, 18, 2, 0.3, 17.75),
    "SWRN-28-18, dropout": Net(28, 18, 6, 0.3, 17.43),
}


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
) -> Row:
    """Every network on every seed, as in Table 3.1 but for the data."""
    order = Order(out, seeds or 5, epochs, images, device)
    title, figures, splits = "Soft sharing on CIFAR-100", "Table 3.2, Figure 3.4", whole("cifar100", data)
    return table("sharing-cifar100", title, figures, NETS, splits, order, classes=100)
