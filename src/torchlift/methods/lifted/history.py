"""What lifted training reports: one row per sweep or epoch, with every layer's penalty."""

import dataclasses
from typing import Any

from torch import nn


@dataclasses.dataclass
class Trained:
    """The user's model, now holding the weights, and how it went.

    Rows have: epoch, objective (with ρ‖W‖²), loss (lifted), penalties (one per hidden layer, per sample), mu,
    seconds and, with validation data, metric. Methods that take gradients report the last batch of an epoch.
    """

    model: nn.Module
    history: list[dict[str, Any]]
    seconds: float


def told(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the one loop's history, as lifted training tells it."""
    found = {
        "epoch": row["epoch"],
        "objective": row["objective"],
        "loss": row["lifted_loss"],
        "penalties": [value for name, value in row.items() if name.startswith("energy ")],
        "mu": [value for name, value in row.items() if name.startswith("mu ")],
        "seconds": row["seconds"],
    }
    return found if row["metric"] is None else found | {"metric": row["metric"]}
