"""What a fair comparison found: all runs by recipe and seed, and what may be said of them."""

import dataclasses
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch

from torchlift.channels.example_inputs import taken
from torchlift.deploy.measuring import latencies
from torchlift.train.checkpoint import write_durable
from torchlift.train.run.result import Result, where_and_when

PLAIN = "plain"


@dataclasses.dataclass(frozen=True)
class Paired:
    """Differences to plain training, seed by seed: positive is better."""

    mean: float
    low: float
    high: float
    """The 95 % confidence interval of the mean (Student's t)."""
    wins: int
    ties: int = 0
    """Seeds on which both gave the same number."""


@dataclasses.dataclass(frozen=True)
class Tuning:
    """What was tried for a recipe before its runs, on validation data and a seed that no run has."""

    trials: int
    seeds: tuple[int, ...]
    values: dict[str, Any]
    """The settings that did best."""
    searched: tuple[str, ...]
    """The names of what was searched."""
    candidates: Mapping[str, float] = dataclasses.field(default_factory=dict[str, float])
    """Their mean metrics on validation data, the more the better; −∞ where one could not be trained."""


@dataclasses.dataclass(frozen=True, repr=False)
class Comparison:
    """All runs, by recipe and seed, and what they say."""

    results: dict[str, list[Result]]
    seeds: tuple[int, ...]
    budget: float
    metric: str
    higher_is_better: bool
    tuning: Mapping[str, Tuning] = dataclasses.field(default_factory=dict[str, Tuning])
    """By recipe; those that are not here are untuned."""
    seconds: float | None = None
    """The time each run was to take, where time was the price and not FLOPs."""
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return self.table()

    def scores(self, name: str, split: str = "test") -> list[float]:
        """The metric per seed, of the checkpoint chosen on validation."""
        return [result.scores[split].metric for result in self.results[name]]

    def paired(self, name: str, to: str = PLAIN) -> Paired:
        """This recipe against another, plain unless given, on the same seeds."""
        sign = 1.0 if self.higher_is_better else -1.0
        pairs = zip(self.scores(name), self.scores(to), strict=True)
        return paired([sign * (mine - other) for mine, other in pairs])

    def cost(self, run: Result) -> float:
        """In plain epochs of the comparison's network, whatever network the run has."""
        plain = self.results[PLAIN][0]
        return run.flops * plain.cost / plain.flops if plain.flops else run.cost

    def table(self) -> str:
        """The results as text."""
        head = ["recipe", f"{self.metric} (test)", "to plain, 95 % CI", "wins", "cost", "time", "params"]
        head.append("settings")
        rows = in_columns([head, *(self.cells(name, runs) for name, runs in self.results.items())])
        return "\n".join([rows[0], "-" * len(rows[0]), *rows[1:], *self.remarks()])

    def remarks(self) -> list[str]:
        """What a reader must know of how the numbers were made."""
        price = f"budget {self.budget:g}" if self.seconds is None else f"{self.seconds:.3g} s each"
        said = [f"{len(self.seeds)} seeds, cost in plain epochs, {price}"]
        return [*said, tuning_remark(self.tuning, list(self.results)), *self.notes]

    def cells(self, name: str, runs: list[Result]) -> list[str]:
        """One recipe's line of the table."""
        scores, diff = self.scores(name), self.paired(name)
        cost, seconds = (statistics.fmean(map(of, runs)) for of in (self.cost, attrgetter("seconds")))
        params = sum(p.numel() for p in runs[0].model.parameters())
        against = "" if name == PLAIN else f"{diff.mean:+.3g} [{diff.low:+.3g}, {diff.high:+.3g}]"
        wins = "" if name == PLAIN else won(diff, len(scores))
        shown = f"{statistics.fmean(scores):.4g} ± {spread(scores):.2g}"
        return [
            name,
            shown,
            against,
            wins,
            f"{cost:.1f}",
            f"{seconds:.3g} s",
            f"{params:,}",
            self.tuned_settings(name),
        ]

    def tuned_settings(self, name: str) -> str:
        """The settings that tuning gave a recipe, or that there was none."""
        tuning = self.tuning.get(name)
        if tuning is None:
            return "untuned"
        return ", ".join(
            f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}"
            for key, value in tuning.values.items()
        )

    def data(self) -> dict[str, Any]:
        """The comparison as plain data; sizes and calls measured now, of the first seed's models in turn."""
        first = self.results[PLAIN][0]
        with torch.random.fork_rng():
            models = [taken(runs[0].model, first.example) for runs in self.results.values()]
            calls = dict(zip(self.results, latencies(models, first.example), strict=True))
        return {
            "title": f"{type(first.before).__name__}: {', '.join(n for n in self.results if n != PLAIN)}",
            "about": where_and_when(first),
            "metric": self.metric,
            "higher_is_better": self.higher_is_better,
            "budget": self.budget,
            "unit": "plain epochs",
            "time": self.seconds,
            "seeds": list(self.seeds),
            "plain": PLAIN,
            "remarks": self.remarks(),
            "recipes": {name: self.recipe_data(name, calls[name]) for name in self.results},
            "paired": {name: dataclasses.asdict(self.paired(name)) for name in self.results if name != PLAIN},
        }

    def recipe_data(self, name: str, seconds: float) -> dict[str, Any]:
        """One recipe's runs as plain data, with the ``seconds`` of a call."""
        runs = self.results[name]
        summary = runs[0].summary()
        tuning = self.tuning.get(name)
        return {
            "test": self.scores(name),
            "valid": self.scores(name, "valid"),
            "cost": [self.cost(run) for run in runs],
            "seconds": [run.seconds for run in runs],
            "params": summary["after"]["params"],
            "bytes": summary["after"]["file_bytes"],
            "latency_ms": 1000 * seconds,
            "tuning": None if tuning is None else dataclasses.asdict(tuning),
            "tuned": self.tuned_settings(name),
            "stages": summary["stages"],
            "history": [run.history for run in runs],
            "settings": runs[0].settings,
        }

    def write(self, folder: Path) -> None:
        """``comparison.json`` and ``report.html``."""
        write_durable(folder / "comparison.json", json.dumps(self.data(), default=str).encode())
        self.report(folder / "report.html")

    def report(self, path: str | Path) -> Path:
        """Write one self-contained HTML file."""
        from torchlift import report

        return report.write(report.comparison_page(self.data()), Path(path))


def won(diff: Paired, seeds: int) -> str:
    """Wins of so many seeds, ties beside them."""
    return f"{diff.wins}/{seeds}" + (f", {diff.ties} tied" if diff.ties else "")


def tuning_remark(tuning: Mapping[str, Tuning], names: Sequence[str]) -> str:
    """Who was tuned, by how many trials, on what."""
    if not tuning:
        return "untuned: every recipe ran at the given rate and settings (tune=k gives each k trials)"
    counts = sorted({one.trials for one in tuning.values()})
    seeds = sorted({seed for one in tuning.values() for seed in one.seeds})
    left = [name for name in names if name not in tuning]
    said = f"tuned on validation data, seed {', '.join(map(str, seeds))}, outside the table: "
    said += f"{' or '.join(map(str, counts))} trials each"
    return said + (f"; untuned: {', '.join(left)}" if left else "")


def paired(differences: Sequence[float]) -> Paired:
    """Mean, 95 % interval and number of wins of paired differences."""
    n, mean = len(differences), statistics.fmean(differences)
    wins, ties = sum(d > 0 for d in differences), sum(d == 0 for d in differences)
    if n < 2:
        return Paired(mean, -math.inf, math.inf, wins, ties)
    half = student_quantile(0.975, n - 1) * statistics.stdev(differences) / math.sqrt(n)
    return Paired(mean, mean - half, mean + half, wins, ties)


def student_cdf(t: float, freedom: int) -> float:
    """P(T ≤ t) of Student's t with a whole number of degrees of freedom (Abramowitz and Stegun 26.7.3–4)."""
    angle = math.atan(t / math.sqrt(freedom))
    total, term = 0.0, 1.0 if freedom % 2 == 0 else math.cos(angle)
    for k in range(freedom % 2, freedom - 1, 2):
        total += term
        term *= (k + 1) / (k + 2) * math.cos(angle) ** 2
    tail = math.sin(angle) * total
    return 0.5 + (tail / 2 if freedom % 2 == 0 else (angle + tail) / math.pi)


def student_quantile(p: float, freedom: int) -> float:
    """The t with P(T ≤ t) = p ≥ ½, by bisection."""
    low, high = 0.0, 1e4
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if student_cdf(middle, freedom) < p else (low, middle)
    return (low + high) / 2


def spread(values: Sequence[float]) -> float:
    """The sample standard deviation; 0 for a single value."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def in_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with a column for every cell: the first to the left, the others to the right."""
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    return [
        "  ".join(
            [row[0].ljust(first), *(cell.rjust(size) for cell, size in zip(row[1:], others, strict=True))]
        )
        for row in rows
    ]
