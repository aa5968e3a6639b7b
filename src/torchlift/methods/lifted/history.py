"""What lifted training reports: one row per sweep or epoch, with every layer's penalty."""

import dataclasses
from pathlib import Path
from typing import Any

from torch import nn


@dataclasses.dataclass(repr=False)
class Trained:
    """The user's model, now holding the weights, and how it went.

    Rows have: epoch, objective (with ρ‖W‖²), loss (lifted), penalties (one per hidden layer, per sample), mu,
    seconds and, with validation data, metric. Methods that take gradients report the last batch of an epoch.
    """

    model: nn.Module
    history: list[dict[str, Any]]
    seconds: float
    layers: tuple[str, ...] = ()
    """The names of the hidden layers, in the order of their penalties."""

    def __repr__(self) -> str:
        first, last = self.history[0], self.history[-1]
        metric = f", metric {last['metric']:.4g}" if "metric" in last else ""
        return (
            f"Trained: {type(self.model).__name__}, {len(self.history)} epochs in {self.seconds:.3g} s, "
            f"objective {first['objective']:.4g} → {last['objective']:.4g}, loss {last['loss']:.4g}{metric}"
        )

    def report(self, path: str | Path) -> Path:
        """A page with the objective and every layer's energy over the epochs."""
        from torchlift import report

        epochs, last = [float(row["epoch"]) for row in self.history], self.history[-1]
        names = self.layers or tuple(str(k + 1) for k in range(len(last["penalties"])))
        logged = [name for name in ("objective", "loss", "metric") if name in last]
        whole = [report.Line(name, epochs, [float(row[name]) for row in self.history]) for name in logged]
        energies = [
            report.Line(name, epochs, [float(row["penalties"][k]) for row in self.history])
            for k, name in enumerate(names)
        ]
        cards = [report.Card(name, float(last[name])) for name in logged]
        charts = [report.Chart(whole, "Objective", "epoch", "mean per sample")]
        if energies:
            charts.append(report.Chart(energies, "Energy of each layer", "epoch", "penalty per sample"))
        sections = [
            report.Section("Result", [report.Cards([*cards, report.Card("seconds", self.seconds)])]),
            report.Section("Training", charts),
        ]
        return report.write(report.Page("Lifted training", type(self.model).__name__, sections), Path(path))


def lifted_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the one loop's history, as lifted training tells it."""
    values = {
        "epoch": row["epoch"],
        "objective": row["objective"],
        "loss": row["lifted_loss"],
        "penalties": [value for name, value in row.items() if name.startswith("energy ")],
        "mu": [value for name, value in row.items() if name.startswith("mu ")],
        "seconds": row["seconds"],
    }
    return values if row["metric"] is None else values | {"metric": row["metric"]}
