"""What a trial costs: the validation metric, of one split or the mean over K folds."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.errors import DataError, DivergedError, TorchliftError
from torchlift.experiments.tune.optuna_extra import optuna
from torchlift.experiments.tune.space import Parts, Space, SpaceFunction, draw, sort_values
from torchlift.train import rng
from torchlift.train.run import Result, fit
from torchlift.train.settings import OptimizerFactory

Pair = tuple[Tensor, Tensor]


@dataclasses.dataclass(frozen=True)
class Objective:
    """Run the recipe with a trial's values on every fold; a value, so that worker processes can have it."""

    make_model: Callable[[], nn.Module]
    folds: tuple[tuple[Any, Any], ...]
    """Pairs of training and validation data."""
    recipe: Callable[..., Any]
    space: Space | SpaceFunction
    fixed: Mapping[str, Any]
    optimizer: OptimizerFactory
    settings: Mapping[str, Any]
    seed: int

    def __call__(self, trial: Any) -> float:
        """The mean validation metric; a diverging or hopeless trial is pruned."""
        parts = self.parts(trial)
        report = Reporter(trial)
        try:
            scores = [
                self.run(parts, number, report).scores["valid"].metric for number in range(len(self.folds))
            ]
        except DivergedError as error:
            raise optuna().TrialPruned(str(error)) from error
        return sum(scores) / len(scores)

    def check(self) -> None:
        """Refuse names that nothing has; what a function draws is seen only in a trial."""
        if isinstance(self.space, Mapping):
            parts = sort_values({**self.fixed, **dict.fromkeys(self.space)}, self.recipe)
            with_options(self.optimizer, parts.optimizer)

    def parts(self, trial: Any) -> Parts:
        """The trial's values, by where they go."""
        return sort_values(self.values(trial), self.recipe)

    def values(self, trial: Any) -> dict[str, Any]:
        """What is drawn and what is fixed; of a recipe's own space, what is fixed counts."""
        drawn = draw(self.space, trial)
        return {**self.fixed, **drawn} if isinstance(self.space, Mapping) else {**drawn, **self.fixed}

    def run(
        self, parts: Parts, number: int, report: Callable[[dict[str, Any]], None] | None = None
    ) -> Result:
        """One fold."""
        train, valid = self.folds[number]
        settings: dict[str, Any] = {"keep": "best"} | dict(self.settings) | parts.run
        with rng.scope(self.seed):
            model = self.make_model()
        return fit(
            model,
            train,
            valid,
            recipe=self.recipe(**parts.recipe),
            optimizer=with_options(self.optimizer, parts.optimizer),
            seed=self.seed,
            listener=report,
            progress=False,
            **settings,
        )


class Reporter:
    """Tells the trial the metric after every epoch of every fold, and stops it where it cannot win."""

    def __init__(self, trial: Any) -> None:
        self.trial, self.step = trial, 0

    def __call__(self, row: dict[str, Any]) -> None:
        """One row of the history."""
        if row.get("metric") is not None:
            self.trial.report(row["metric"], self.step)
        self.step += 1
        if self.trial.should_prune():
            raise optuna().TrialPruned(f"at epoch {self.step}")


def with_options(factory: OptimizerFactory, options: Mapping[str, Any]) -> OptimizerFactory:
    """The optimizer with some options replaced."""
    if not options:
        return factory
    kind = factory.func if isinstance(factory, functools.partial) else factory
    known = inspect.signature(kind).parameters
    for name in options:
        if name not in known:
            raise TorchliftError(f"{kind.__name__} has no option {name!r}; it has {', '.join(known)}.")
    return functools.partial(factory, **options)


def k_folds(train: Any, valid: Any, folds: int, seed: int) -> Iterator[tuple[Pair, Pair]]:
    """K splits of all samples of both parts, each sample once in validation; drawn by the seed."""
    x, y = joined(train, valid)
    if not 2 <= folds <= len(x):
        raise DataError(f"folds must lie between 2 and the {len(x)} samples, got {folds}.")
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    chunks = order.tensor_split(folds)
    for number, held in enumerate(chunks):
        rest = torch.cat([chunk for other, chunk in enumerate(chunks) if other != number])
        yield (x[rest], y[rest]), (x[held], y[held])


def joined(train: Any, valid: Any) -> Pair:
    """Training and validation samples together."""
    parts = [part for part in (train, valid) if part is not None]
    for part in parts:
        pair = isinstance(part, tuple) and len(part) == 2 and all(isinstance(t, Tensor) for t in part)
        if not pair:
            raise DataError(f"cross-validation needs (x, y) tensors in memory, got a {type(part).__name__}.")
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
