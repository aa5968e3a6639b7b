"""Trials before the paired runs, on seeds outside the table: of a recipe's rate, or of several candidates."""

import dataclasses
import functools
import hashlib
import inspect
import json
import logging
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchlift.errors import BudgetError, DivergedError, TorchliftError
from torchlift.experiments.arm import Arm, Setup, run_job
from torchlift.experiments.comparison import Tuning
from torchlift.experiments.executors import Executor, run_all
from torchlift.experiments.pricing import same_flops
from torchlift.experiments.tune import Tuned, search
from torchlift.experiments.tune.space import RATE, own_space
from torchlift.journal import Journal
from torchlift.methods.recipe import Recipe, as_recipe
from torchlift.train import source
from torchlift.train.run.identity import describe_data, describe_model
from torchlift.train.run.labels import folder_name
from torchlift.train.run.names import option
from torchlift.train.run.record import run_id
from torchlift.train.run.values import as_toml_value

LOG = logging.getLogger("torchlift")
CANDIDATES = "candidates.jsonl"


@dataclasses.dataclass(frozen=True)
class Trials:
    """How many for which label, and the seeds that are kept for them; candidates are tried on all of them."""

    counts: dict[str, int]
    seeds: tuple[int, ...]

    @classmethod
    def of(
        cls, tune: int | Mapping[str, int], labels: Mapping[str, Mapping[str, Arm]], seeds: Sequence[int]
    ) -> "Trials":
        """From what :func:`torchlift.compare` was given."""
        single = [label for label, arms in labels.items() if list(arms) == [label]]
        counts = dict(tune) if isinstance(tune, Mapping) else dict.fromkeys(single, tune)
        strangers = sorted(set(counts) - set(labels))
        if strangers:
            raise TorchliftError(f"tune names {', '.join(strangers)}; there are: {', '.join(labels)}.")
        if any(isinstance(k, bool) or not isinstance(k, int) or k < 0 for k in counts.values()):
            raise TorchliftError(f"tune is a number of trials for each recipe, 0 for none; got {tune!r}.")
        if several := sorted(label for label, k in counts.items() if k and label not in single):
            raise TorchliftError(
                f"{', '.join(several)} has candidates of its own: tune={{label: trials}} names others."
            )
        if not seeds:
            raise TorchliftError("trials need at least one seed: tuning_seeds=(100,), outside the table.")
        return cls({label: k for label, k in counts.items() if k}, tuple(seeds))

    @property
    def seed(self) -> int:
        """That of a search."""
        return self.seeds[0]

    def tuning_folders(self, labels: Mapping[str, Any]) -> dict[tuple[str, Any], str]:
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
    settings = arm.merged({**setup.settings, "epochs": budget * same_flops(setup, arm, seed)})
    recipe, optimizer = as_recipe(settings.pop("recipe")), settings.pop("optimizer")
    rate = option(optimizer, RATE)
    space = own_space(recipe, rate)
    if not space:
        return None
    train, valid, _ = setup.split_data(seed)
    return search(
        arm.model or setup.make_model,
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
    return Tuning(done, (seed,), dict(tuned.best), tuple(tuned.best))


def tuned(
    setup: Setup,
    labels: Mapping[str, Mapping[str, Arm]],
    trials: Trials,
    budget: float,
    folders: Mapping[tuple[str, Any], Path | None],
    executor: Executor,
    **shared: bool,
) -> dict[str, Tuned]:
    """The search of every arm that is given trials, and has something to try."""
    jobs = [
        functools.partial(
            search_arm,
            setup,
            labels[name][name],
            count,
            trials.seed,
            budget,
            out=folders[name, "tuning"],
            **shared,
        )
        for name, count in trials.counts.items()
    ]
    searches = dict(zip(trials.counts, run_all(run_job, jobs, executor), strict=True))
    return {name: search for name, search in searches.items() if search is not None}


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A candidate's run on a seed of the trials: what it is worth on validation data, kept in the journal."""

    setup: Setup
    name: str
    arm: Arm
    seed: int
    epochs: float
    journal: Journal | None

    def __call__(self) -> float:
        """Its metric, the more the better; −∞ where it diverges, or has a step that the budget cannot pay."""
        key = "" if self.journal is None else self.key()
        recorded = {} if self.journal is None else {row["key"]: row["value"] for row in self.journal.read()}
        if key in recorded:
            return recorded[key]
        try:
            result = self.setup.run(self.arm, self.seed, epochs=self.epochs, progress=False)
            score = result.scores["valid"]
            value = score.metric if score.higher_is_better else -score.metric
        except (DivergedError, BudgetError) as error:
            LOG.warning("compare drops %s: %s", self.name, error)
            value = -math.inf
        if self.journal is not None:
            self.journal.append({"key": key, "candidate": self.name, "seed": self.seed, "value": value})
        return value

    def key(self) -> str:
        """A digest of the run's settings, model and data: a trial of others is another trial."""
        settings = self.arm.merged(self.setup.settings) | {"epochs": self.epochs, "seed": self.seed}
        model = describe_model(self.setup.model(self.arm, self.seed))
        batch = int(settings.get("batch_size", 128))
        data = [describe_data(source(samples, batch)) for samples in self.setup.split_data(self.seed)[:2]]
        text = json.dumps([self.name, as_toml_value(settings), model, data], sort_keys=True, default=str)
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def best_candidates(
    setup: Setup,
    several: Mapping[str, Mapping[str, Arm]],
    budgets: Mapping[str, float],
    seeds: Sequence[int],
    folder: Path | None,
    executor: Executor,
) -> dict[str, Tuning]:
    """Every candidate on every seed of the trials; by label, the best by its mean on validation data."""
    arms = by_name(several)
    journal = None if folder is None else Journal(folder / CANDIDATES, run_id(folder))
    jobs = [
        Candidate(setup, name, arm, seed, budgets[name], journal)
        for name, arm in arms.items()
        for seed in seeds
    ]
    values = iter(run_all(run_job, jobs, executor))
    means = {name: statistics.fmean(next(values) for _ in seeds) for name in arms}
    chosen: dict[str, Tuning] = {}
    for label, candidates in several.items():
        best = max(candidates, key=lambda name: means[name])
        if means[best] == -math.inf:
            raise DivergedError(
                f"no candidate of {label!r} came to its end: lower the rates, or raise the budget."
            )
        tried = {name: means[name] for name in candidates}
        chosen[label] = Tuning(len(candidates), tuple(seeds), {"arm": best}, ("arm",), tried)
    return chosen


def by_name(labels: Mapping[str, Mapping[str, Arm]]) -> dict[str, Arm]:
    """The arms of all labels by their names; one name is one arm."""
    arms: dict[str, Arm] = {}
    for candidates in labels.values():
        for name, arm in candidates.items():
            if arms.setdefault(name, arm) is not arm:
                raise TorchliftError(f"two different arms are called {name!r}: rename one.")
    return arms
