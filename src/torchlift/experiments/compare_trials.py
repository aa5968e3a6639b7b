"""Trials before the paired runs: every recipe at its own best rate, found on a seed outside the table."""

import dataclasses
import functools
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchlift.errors import TorchliftError
from torchlift.experiments.comparison import Tuning
from torchlift.experiments.executors import Executor, run_all
from torchlift.experiments.jobs import Job
from torchlift.experiments.tune import Tuned, search
from torchlift.experiments.tune.objective import with_options
from torchlift.experiments.tune.space import RATE, own_space, sort_values
from torchlift.methods.recipe import Recipe, as_recipe
from torchlift.train.run.labels import folder_name
from torchlift.train.run.names import option


@dataclasses.dataclass(frozen=True)
class Trials:
    """How many for which label, and the seed that is kept for them."""

    counts: dict[str, int]
    seed: int

    @classmethod
    def of(cls, tune: int | Mapping[str, int], labels: Mapping[str, Any], seed: int) -> "Trials":
        """From what :func:`torchlift.compare` was given."""
        counts = dict(tune) if isinstance(tune, Mapping) else dict.fromkeys(labels, tune)
        strangers = sorted(set(counts) - set(labels))
        if strangers:
            raise TorchliftError(f"tune names {', '.join(strangers)}; there are: {', '.join(labels)}.")
        if any(isinstance(k, bool) or not isinstance(k, int) or k < 0 for k in counts.values()):
            raise TorchliftError(f"tune is a number of trials for each recipe, 0 for none; got {tune!r}.")
        return cls({label: k for label, k in counts.items() if k}, seed)

    def places(self, labels: Mapping[str, Any]) -> dict[tuple[str, Any], str]:
        """A folder for every search."""
        return {(label, "tuning"): f"{folder_name(label)}-tuning" for label in labels if label in self.counts}


@dataclasses.dataclass(frozen=True)
class Remake:
    """A recipe as something to be made anew with other values of its fields."""

    recipe: Recipe

    @functools.cached_property
    def __signature__(self) -> inspect.Signature:
        kinds = inspect.signature(type(self.recipe)).parameters.values() if self.fields else ()
        return inspect.Signature([p.replace(kind=p.KEYWORD_ONLY) for p in kinds])

    @property
    def fields(self) -> bool:
        """Whether there are any."""
        return dataclasses.is_dataclass(self.recipe)

    def __call__(self, **values: Any) -> Any:
        """The recipe with these."""
        return dataclasses.replace(self.recipe, **values) if values else self.recipe  # pyright: ignore


@dataclasses.dataclass(frozen=True)
class Found:
    """What the trials of one recipe gave."""

    tuned: Tuned
    seed: int

    def applied(self, arm: Job) -> Job:
        """The run with the best values."""
        parts = sort_values(self.tuned.values, Remake(as_recipe(arm.recipe)))
        optimizer = with_options(arm.settings["optimizer"], parts.optimizer)
        return dataclasses.replace(
            arm, recipe=self.tuned.recipe, settings={**arm.settings, **parts.run, "optimizer": optimizer}
        )

    def summary(self) -> Tuning:
        """For the table."""
        done = sum(trial.state in ("complete", "pruned") for trial in self.tuned.trials)
        return Tuning(done, self.seed, dict(self.tuned.best), tuple(self.tuned.best))


@dataclasses.dataclass(frozen=True)
class Search:
    """The search of one recipe: a value, so that another process can have it."""

    arm: Job
    trials: int
    seed: int
    budget: float
    out: Path | None
    resume: bool
    overwrite: bool

    def __call__(self) -> Found | None:
        """Search, from the given settings on; None where there is nothing to search."""
        recipe, settings = as_recipe(self.arm.recipe), dict(self.arm.settings)
        optimizer = settings.pop("optimizer")
        rate = option(optimizer, RATE)
        space = own_space(recipe, rate)
        if not space:
            return None
        train, valid, _ = self.arm.data
        found = search(
            self.arm.make_model,
            train,
            valid,
            recipe=Remake(recipe),
            space=space,
            optimizer=optimizer,
            trials=self.trials,
            first={RATE: rate} if rate is not None else None,
            seed=self.seed,
            out=self.out,
            resume=self.resume,
            overwrite=self.overwrite,
            epochs=self.budget,
            equal_cost=True,
            **settings,
        )
        return Found(found, self.seed)


def tuned(
    arms: Mapping[str, Job],
    trials: Trials,
    budget: float,
    places: Mapping[tuple[str, Any], Path | None],
    executor: Executor,
    *,
    resume: bool,
    overwrite: bool,
) -> dict[str, Found]:
    """The best settings of every recipe that is given trials, and has something to try."""
    searches = [
        Search(arms[name], count, trials.seed, budget, places[name, "tuning"], resume, overwrite)
        for name, count in trials.counts.items()
    ]
    found = run_all(run_search, searches, executor)
    return {name: one for name, one in zip(trials.counts, found, strict=True) if one is not None}


def run_search(one: Search) -> Found | None:
    """In this process or another."""
    return one()
