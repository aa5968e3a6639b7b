"""Folding shared networks: SWRN-28-10-4 and SWRN-40-8-8 (thesis Figures 3.5–3.7, 3.10, 3.11)."""

import dataclasses
from pathlib import Path

from papers.common.arms import Row, spread
from papers.savarese_thesis.pruning_runs import whole
from papers.savarese_thesis.sharing_runs import COLUMNS, Net, Order, as_record, side_by_side
from torchlift.models import SHARED
from torchlift.recipes import SoftSharing

NETS = {"SWRN-28-10-4": Net(28, 10, 4), "SWRN-40-8-8": Net(40, 8, 8)}
FOLDS = {"SWRN-28-10-4": 0.95, "SWRN-40-8-8": 0.8}
"""How alike layers have to be to become one."""


def folded_nets() -> dict[str, Net]:
    """The same networks, folded at the end."""
    return {
        f"{name}, folded": Folded(**dataclasses.asdict(net), fold=FOLDS[name]) for name, net in NETS.items()
    }


@dataclasses.dataclass(frozen=True)
class Folded(Net):
    """A shared network whose like layers are one in the end."""

    fold: float = 0.9

    @property
    def recipe(self) -> SoftSharing | None:
        """Trained in templates; layers that are alike are tied, not trained on."""
        return SoftSharing(self.templates, groups=SHARED, fold=self.fold, finetune=0.0)


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
) -> Row:
    """Both networks as trained and folded; similarities at their ends and after a quarter of the epochs."""
    order = Order(out, seeds or 5, epochs, images, device)
    nets = NETS | folded_nets()
    results = side_by_side("folding", nets, whole("cifar10", data), order)
    result = as_record("Folding shared networks", "Figures 3.5–3.7, 3.10, 3.11", nets, results, order)
    for row in result["rows"]:
        runs = [one["similarity"] for one in results[row["network"]] if one["similarity"]]
        row["largest similarity"] = spread([least_of_largest(one[-1]["groups"]) for one in runs])
        row["change after a quarter"] = spread([change(one[len(one) // 4], one[-1]) for one in runs])
    first = results["SWRN-40-8-8"][0]["similarity"]
    matrices = [
        {"name": f"SWRN-40-8-8, epoch {step['epoch']}, {group}", "values": values}
        for step in (first[0], first[len(first) // 4], first[-1])
        for group, values in step["groups"].items()
    ]
    columns = [*COLUMNS, "largest similarity", "change after a quarter"]
    return result | {"columns": columns, "matrices": matrices}


def least_of_largest(groups: dict[str, list[list[float]]]) -> float:
    """In the stage where layers are least alike, how alike the two nearest are."""
    return min(
        max((abs(v) for i, row in enumerate(values) for j, v in enumerate(row) if i != j), default=0.0)
        for values in groups.values()
    )


def change(early: Row, late: Row) -> float:
    """The mean change of a similarity."""
    gaps = [
        abs(a - b)
        for name, values in late["groups"].items()
        for row, other in zip(values, early["groups"][name], strict=True)
        for a, b in zip(row, other, strict=True)
    ]
    return sum(gaps) / len(gaps)
