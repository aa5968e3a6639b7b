"""A fair comparison: equal cost, paired seeds, one data order, plain training always in it."""

import dataclasses
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from torchlift.core import Lift
from torchlift.errors import TorchliftError
from torchlift.recipes.tools.recipe import RecipeLike, as_recipe
from torchlift.run.checks import Look, as_task
from torchlift.run.folder import open_run
from torchlift.run.labels import places
from torchlift.run.lock import claims
from torchlift.run.result import Result
from torchlift.run.single import fit
from torchlift.train import rng
from torchlift.train.checkpoint import write
from torchlift.train.engines import first_process

PLAIN = "plain"


@dataclasses.dataclass(frozen=True)
class Paired:
    """Differences to plain training, seed by seed: positive is better."""

    mean: float
    low: float
    high: float
    """The 95 % confidence interval of the mean (Student's t)."""
    wins: int


@dataclasses.dataclass(frozen=True)
class Comparison:
    """All runs, by recipe and seed, and what they say."""

    results: dict[str, list[Result]]
    seeds: tuple[int, ...]
    budget: float
    metric: str
    higher_is_better: bool

    def scores(self, name: str, part: str = "test") -> list[float]:
        """The metric per seed, of the checkpoint chosen on validation."""
        return [result.scores[part].metric for result in self.results[name]]

    def paired(self, name: str) -> Paired:
        """This recipe against plain on the same seeds."""
        sign = 1.0 if self.higher_is_better else -1.0
        pairs = zip(self.scores(name), self.scores(PLAIN), strict=True)
        return paired([sign * (mine - plain) for mine, plain in pairs])

    def table(self) -> str:
        """The results as text."""
        head = ["recipe", f"{self.metric} (test)", "to plain, 95 % CI", "wins", "cost", "params"]
        rows = in_columns([head, *(self.cells(name, runs) for name, runs in self.results.items())])
        note = f"{len(self.seeds)} seeds, cost in plain epochs, budget {self.budget:g}"
        return "\n".join([rows[0], "-" * len(rows[0]), *rows[1:], note])

    def cells(self, name: str, runs: list[Result]) -> list[str]:
        """One recipe's line of the table."""
        scores, diff = self.scores(name), self.paired(name)
        cost = statistics.fmean(run.cost for run in runs)
        params = sum(p.numel() for p in runs[0].model.parameters())
        against = "" if name == PLAIN else f"{diff.mean:+.3g} [{diff.low:+.3g}, {diff.high:+.3g}]"
        wins = "" if name == PLAIN else f"{diff.wins}/{len(scores)}"
        shown = f"{statistics.fmean(scores):.4g} ± {spread(scores):.2g}"
        return [name, shown, against, wins, f"{cost:.1f}", f"{params:,}"]

    def data(self) -> dict[str, Any]:
        """The comparison as plain data; sizes and latency measured now."""
        return {
            "title": "Equal cost, paired seeds",
            "metric": self.metric,
            "higher_is_better": self.higher_is_better,
            "budget": self.budget,
            "unit": "plain epochs",
            "seeds": list(self.seeds),
            "plain": PLAIN,
            "recipes": {name: self.recipe_data(name, runs) for name, runs in self.results.items()},
            "paired": {name: dataclasses.asdict(self.paired(name)) for name in self.results if name != PLAIN},
        }

    def recipe_data(self, name: str, runs: list[Result]) -> dict[str, Any]:
        """One recipe's runs as plain data."""
        summary = runs[0].summary()
        return {
            "test": self.scores(name),
            "valid": self.scores(name, "valid"),
            "cost": [run.cost for run in runs],
            "seconds": [run.seconds for run in runs],
            "params": summary["after"]["params"],
            "bytes": summary["after"]["file_bytes"],
            "latency_ms": summary["after"]["latency_ms"],
            "history": [run.history for run in runs],
            "settings": runs[0].settings,
        }

    def report(self, path: str | Path) -> Path:
        """Write one self-contained HTML file."""
        from torchlift import report

        return report.write(report.comparison_page(self.data()), Path(path))


@claims()
def compare(
    make_model: Callable[[], nn.Module],
    train: Any,
    valid: Any,
    test: Any,
    *,
    recipes: Mapping[str, RecipeLike | Lift | None],
    seeds: int | Sequence[int] = 5,
    budget: float = 10.0,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    **settings: Any,
) -> Comparison:
    """Run every recipe on every seed at the cost of ``budget`` plain epochs.

    Seeds are paired: the same initial model and data order for all recipes.

    Args:
        make_model: a function that makes a fresh model; called once per seed and recipe, under the seed.
        train: as for :func:`torchlift.fit`.
        valid: the checkpoint of each run is chosen on these.
        test: what the table shows is measured on these, once.
        recipes: names to recipes or single lifts. ``"plain"`` is always there; give your own under that
            name to tune it. One that does not accept the model ends the comparison before it starts.
        seeds: how many, or which.
        budget: FLOPs of each run, in epochs of plain training.
        out: a folder; every run has its own in it, and ``comparison.json`` holds the results.
        resume: go on with what is in ``out``.
        overwrite: start anew in ``out``.
        progress: show a bar on a terminal.
        settings: further settings of :func:`torchlift.fit` for all runs (``keep="best"`` unless given).
    """
    numbers = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not numbers:
        raise TorchliftError("compare needs at least one seed.")
    settings = {"keep": "best"} | settings
    entries: dict[str, RecipeLike | Lift | None] = {PLAIN: None} | dict(recipes)
    refuse_early(make_model, entries, train, numbers[0], settings)
    results: dict[str, list[Result]] = {name: [] for name in entries}
    folders = places(entries, numbers)
    if out is not None and first_process():
        record = {"folders": list(folders.values())}
        open_run(Path(out), "comparison", lambda: record, resume=resume, overwrite=overwrite)
    for seed in numbers:
        for name, recipe in entries.items():
            with rng.scope(seed):
                model = make_model()
            place = None if out is None else Path(out) / folders[name, seed]
            run = fit(
                model,
                train,
                valid,
                test=test,
                recipe=recipe,
                epochs=budget,
                equal_cost=True,
                seed=seed,
                out=place,
                resume=resume,
                overwrite=overwrite,
                progress=progress,
                **settings,
            )
            results[name].append(run)
    score = results[PLAIN][0].scores["test"]
    comparison = Comparison(results, numbers, budget, results[PLAIN][0].metric, score.higher_is_better)
    if out is not None and first_process():
        write(Path(out) / "comparison.json", json.dumps(comparison.data(), default=str).encode())
    return comparison


def refuse_early(
    make_model: Callable[[], nn.Module],
    entries: Mapping[str, RecipeLike | Lift | None],
    train: Any,
    seed: int,
    settings: Mapping[str, Any],
) -> None:
    """Ask every recipe whether it is for this model, before the first run."""
    with rng.scope(seed):
        task = as_task(make_model(), settings.get("loss", "cross_entropy"))
        for name, recipe in entries.items():
            reason = as_recipe(recipe).accepts(task, Look(train, settings.get("batch_size", 128)))
            if reason is not None:
                raise TorchliftError(f"{name!r} is not for this model: {reason}")


def paired(differences: Sequence[float]) -> Paired:
    """Mean, 95 % interval and number of wins of paired differences."""
    n, mean = len(differences), statistics.fmean(differences)
    wins = sum(d > 0 for d in differences)
    if n < 2:
        return Paired(mean, -math.inf, math.inf, wins)
    half = student_quantile(0.975, n - 1) * statistics.stdev(differences) / math.sqrt(n)
    return Paired(mean, mean - half, mean + half, wins)


def student_cdf(t: float, freedom: int) -> float:
    """P(T ≤ t) of Student's t with a whole number of degrees of freedom (Abramowitz and Stegun 26.7.3–4)."""
    angle = math.atan(t / math.sqrt(freedom))
    total, term = 0.0, 1.0 if freedom % 2 == 0 else math.cos(angle)
    for k in range(freedom % 2, freedom - 1, 2):
        total += term
        term *= (k + 1) / (k + 2) * math.cos(angle) ** 2
    part = math.sin(angle) * total
    return 0.5 + (part / 2 if freedom % 2 == 0 else (angle + part) / math.pi)


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
