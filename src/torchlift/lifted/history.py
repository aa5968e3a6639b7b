"""What a lifted training run reports: one row per sweep or epoch, with every layer's penalty."""

import dataclasses
import sys
import time
from typing import Any

from torch import Tensor, nn


@dataclasses.dataclass
class Trained:
    """The user's model, now holding the weights, and how it went.

    Rows have: epoch, objective, loss (lifted), penalties (one per hidden layer, per sample), mu, seconds and,
    with validation data, metric.
    """

    model: nn.Module
    history: list[dict[str, Any]]
    seconds: float


class Log:
    """Collects rows and prints them."""

    def __init__(self, epochs: int, progress: bool) -> None:
        self.rows: list[dict[str, Any]] = []
        self.epochs, self.progress = epochs, progress
        self.start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return time.perf_counter() - self.start

    def add(self, parts: Tensor, samples: int, mus: list[float], metric: float | None) -> None:
        """Note the sums of all penalties over ``samples`` samples."""
        values = (parts / samples).tolist()
        objective = sum(mu * value for mu, value in zip(mus, values, strict=True))
        row: dict[str, Any] = {
            "epoch": len(self.rows) + 1,
            "objective": objective,
            "loss": values[-1],
            "penalties": values[:-1],
            "mu": list(mus[:-1]),
            "seconds": self.seconds,
        }
        if metric is not None:
            row["metric"] = metric
        self.rows.append(row)
        if self.progress:
            inner = " ".join(f"{value:.2e}" for value in row["penalties"])
            shown = "" if metric is None else f"  metric {metric:.4f}"
            line = f"{row['epoch']}/{self.epochs}  loss {row['loss']:.4f}  penalties {inner}{shown}"
            print(f"lifted {line}  {row['seconds']:.1f} s", file=sys.stderr, flush=True)
