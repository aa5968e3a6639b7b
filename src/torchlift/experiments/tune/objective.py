"""What a trial costs: the validation metric, of one split or the mean over K folds."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.errors import DataError, DivergedError
from torchlift.experiments.arm import Arm, Setup, with_options
from torchlift.experiments.tune.optuna_extra import optuna
from torchlift.experiments.tune.space import Space, SpaceFunction, draw, sort_values
from torchlift.train.settings import OptimizerFactory

SplitPair = tuple[Tensor, Tensor]


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
    """Of every run; what a trial draws goes before them."""
    seed: int

    def __call__(self, trial: Any) -> float:
        """The mean validation metric; a diverging or hopeless trial is pruned."""
        arm, report = self.arm(self.values(trial)), Reporter(trial)
        try:
            scores = [self.score(arm, fold, report) for fold in self.folds]
        except DivergedError as error:
            raise optuna().TrialPruned(str(error)) from error
        return sum(scores) / len(scores)

    def check(self) -> None:
        """Raise for names that nothing has; what a function draws is seen only in a trial."""
        if isinstance(self.space, Mapping):
            by_kind = sort_values({**self.fixed, **dict.fromkeys(self.space)}, self.recipe)
            with_options(self.optimizer, by_kind.optimizer)

    def values(self, trial: Any) -> dict[str, Any]:
        """What is drawn, and what is fixed."""
        return {**draw(self.space, PinnedTrial(trial, self.fixed)), **self.fixed}

    def arm(self, values: Mapping[str, Any]) -> Arm:
        """A point of the space as a run."""
        by_kind = sort_values(values, self.recipe)
        return Arm(
            self.recipe(**by_kind.recipe),
            with_options(self.optimizer, by_kind.optimizer),
            settings=by_kind.run,
        )

    def score(self, arm: Arm, fold: tuple[Any, Any], report: Callable[[dict[str, Any]], None]) -> float:
        """The validation metric on one fold."""
        setup = Setup(self.make_model, (*fold, None), {"keep": "best", **self.settings})
        return setup.run(arm, self.seed, listener=report, progress=False).scores["valid"].metric


class PinnedTrial:
    """A trial that draws no parameter whose value is fixed, so that it does not count as one."""

    def __init__(self, trial: Any, fixed: Mapping[str, Any]) -> None:
        self.trial, self.fixed = trial, fixed

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.trial, name)
        if not name.startswith("suggest_"):
            return method
        return lambda key, *rest, **more: self.fixed[key] if key in self.fixed else method(key, *rest, **more)


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


def k_folds(train: Any, valid: Any, folds: int, seed: int) -> Iterator[tuple[SplitPair, SplitPair]]:
    """K splits of all samples of both parts, each sample once in validation; drawn by the seed."""
    x, y = joined(train, valid)
    if not 2 <= folds <= len(x):
        raise DataError(f"folds must lie between 2 and the {len(x)} samples, got {folds}.")
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    chunks = order.tensor_split(folds)
    for number, fold in enumerate(chunks):
        rest = torch.cat([chunk for other, chunk in enumerate(chunks) if other != number])
        yield (x[rest], y[rest]), (x[fold], y[fold])


def joined(train: Any, valid: Any) -> SplitPair:
    """Training and validation samples together."""
    splits = [samples for samples in (train, valid) if samples is not None]
    for samples in splits:
        pair = (
            isinstance(samples, tuple) and len(samples) == 2 and all(isinstance(t, Tensor) for t in samples)
        )
        if not pair:
            raise DataError(
                f"cross-validation needs (x, y) tensors in memory, got a {type(samples).__name__}."
            )
    return torch.cat([samples[0] for samples in splits]), torch.cat([samples[1] for samples in splits])
