"""Trials before the paired runs: every recipe at its own best rate, found on a seed outside the table."""

import dataclasses
import functools
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchlift.errors import TorchliftError
from torchlift.experiments.arm import Arm, Setup, run_job
from torchlift.experiments.comparison import Tuning
from torchlift.experiments.executors import Executor, run_all
from torchlift.experiments.tune import Tuned, search
from torchlift.experiments.tune.space import RATE, own_space
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
    """A recipe as a factory that takes other values of its fields."""

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


def search_arm(setup: Setup, arm: Arm, trials: int, seed: int, budget: float, **options: Any) -> Tuned | None:
    """The search of one arm, from its settings on; None where there is nothing to search."""
    settings = arm.merged({**setup.settings, "epochs": budget})
    recipe, optimizer = as_recipe(settings.pop("recipe")), settings.pop("optimizer")
    rate = option(optimizer, RATE)
    space = own_space(recipe, rate)
    if not space:
        return None
    train, valid, _ = setup.data
    return search(
        setup.make_model,
        train,
        valid,
        recipe=Remake(recipe),
        space=space,
        optimizer=optimizer,
        trials=trials,
        first={RATE: rate} if rate is not None else None,
        seed=seed,
        **settings,
        **options,
    )


def summary(tuned: Tuned, seed: int) -> Tuning:
    """What was tried, for the table."""
    done = sum(trial.state in ("complete", "pruned") for trial in tuned.trials)
    return Tuning(done, seed, dict(tuned.best), tuple(tuned.best))


def tuned(
    setup: Setup,
    arms: Mapping[str, Arm],
    trials: Trials,
    budget: float,
    places: Mapping[tuple[str, Any], Path | None],
    executor: Executor,
    **shared: bool,
) -> dict[str, Tuned]:
    """The search of every arm that is given trials, and has something to try."""
    jobs = [
        functools.partial(
            search_arm, setup, arms[name], count, trials.seed, budget, out=places[name, "tuning"], **shared
        )
        for name, count in trials.counts.items()
    ]
    searches = dict(zip(trials.counts, run_all(run_job, jobs, executor), strict=True))
    return {name: search for name, search in searches.items() if search is not None}
