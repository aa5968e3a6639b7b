"""``search``: a durable study in a folder, shared by worker processes."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import nn

from torchlift import loss as losses
from torchlift.core import Supervised
from torchlift.errors import TorchliftError
from torchlift.experiments.arm import check_settings
from torchlift.experiments.executors import Executor, run_all
from torchlift.experiments.tune.journal import open_journal, try_one
from torchlift.experiments.tune.lines import along_lines
from torchlift.experiments.tune.objective import Objective, k_folds
from torchlift.experiments.tune.optuna_extra import optuna
from torchlift.experiments.tune.result import Trial, Tuned
from torchlift.experiments.tune.space import Space, SpaceFunction, default_space
from torchlift.recipes import Plain
from torchlift.train import rng, source
from torchlift.train.engines import processes
from torchlift.train.run.folder import open_run
from torchlift.train.run.identity import describe_data, describe_model
from torchlift.train.run.lock import Lock, claim, claims
from torchlift.train.run.names import named_optimizer
from torchlift.train.run.record import RunRecord, check_same_run, flat, headed, read_record, run_id
from torchlift.train.run.values import as_toml_value
from torchlift.train.settings import ADAMW, OptimizerFactory

JOURNAL, RESULT = "study.journal", "tuning.json"
RANK = "worker"
"""The attribute of a trial that names its worker."""


@claims()
def search(
    make_model: Callable[[], nn.Module],
    train: Any,
    valid: Any = None,
    *,
    recipe: Callable[..., Any] = Plain,
    space: Space | SpaceFunction | None = None,
    fixed: Mapping[str, Any] | None = None,
    optimizer: str | OptimizerFactory = ADAMW,
    method: Literal["tpe", "lines"] = "tpe",
    trials: int = 20,
    folds: int | None = None,
    workers: int = 1,
    executor: Executor = None,
    first: Mapping[str, Any] | None = None,
    prune: bool = True,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    join: bool = False,
    **settings: Any,
) -> Tuned:
    """Search ``space`` for the best validation metric of ``recipe(**fixed, **drawn)``.

    Names in ``space`` are the recipe's fields, ``lr`` and ``opt.<option>`` of the optimizer, and ``clip``,
    ``batch_size``, ``epochs``, ``keep``, ``schedule`` of the run; other ``settings`` go to
    :func:`torchlift.fit`. ``folds``: the mean over K-fold cross-validation of all given samples, instead of
    ``valid``. With ``out`` the study is a journal on disk: ``resume=True`` goes on until ``trials`` are done,
    ``workers`` processes share it (of ``executor``, where one is given: see ``executors``),
    and ``join=True`` adds this process to a search that is running. ``first``: a point to try before others.
    ``method="lines"``: one axis of a grid after the other, for separable optimizers such as AvaGrad.
    """
    check_not_torchrun()
    if valid is None and folds is None:
        raise TorchliftError("search needs validation data, or folds=K to set them aside in turn.")
    check_settings(settings, "tune")
    pairs = ((train, valid),) if folds is None else tuple(k_folds(train, valid, folds, seed))
    chosen = default_space(recipe) if space is None else space
    twice = sorted(set(fixed or {}) & set(chosen)) if isinstance(chosen, Mapping) else []
    if twice:
        raise TorchliftError(f"{', '.join(twice)} is fixed and searched: leave it out of one.")
    factory = named_optimizer(optimizer)
    objective = Objective(make_model, pairs, recipe, chosen, fixed or {}, factory, settings, seed)
    objective.check()
    higher, metric = direction(settings)
    folder = None if out is None else Path(out)
    about = describe_search(objective, method, folds)
    lock = None
    if folder is not None:
        lock = open_folder(folder, about, resume, overwrite, join)
    elif workers > 1 or executor is not None:
        raise TorchliftError("several workers need out=: a folder for the study they share.")
    study = open_study(folder, higher, prune)
    if not join:
        fail_stale(study)
    if first is not None and not study.trials:
        study.enqueue_trial(dict(first))
    if lock is not None:
        lock.share()  # from here on others may join
    if method == "lines":
        along_lines(study, objective, trials, higher)
    elif folder is None or (workers == 1 and executor is None):
        optimize(study, objective, trials, seed)
    else:
        share = Share(folder, higher, seed, prune, objective, trials)
        run_all(share, range(workers), workers if executor is None else executor)
    tuned = tuned_so_far(
        open_study(folder, higher, prune) if folder else study, objective, metric, higher, flat(about)
    )
    if folder is not None:
        tuned.to_json(folder / RESULT)
        tuned.report(folder / "report.html")
    return tuned


def check_not_torchrun() -> None:
    """Trials are shared among workers of the search's own."""
    if processes() > 1:
        raise TorchliftError(
            "search shares its trials among workers=N of its own: start it without torchrun."
        )


def direction(settings: Mapping[str, Any]) -> tuple[bool, str]:
    """Which way the metric is good, and its name."""
    if settings.get("metric") is not None:
        return True, getattr(settings["metric"], "__name__", "metric")
    loss = losses.as_loss(settings.get("loss", "cross_entropy"), nn.Module())
    return (loss.higher_is_better, loss.metric) if isinstance(loss, Supervised) else (False, "loss")


def describe_search(objective: Objective, method: str, folds: int | None) -> RunRecord:
    """What identifies a search: a folder made with anything else is not resumed."""
    train, valid = objective.folds[0]
    batch = int(objective.settings.get("batch_size", 128))
    with rng.scope(objective.seed):
        model = objective.make_model()
    return {
        "recipe": as_toml_value(objective.recipe),
        "fixed": as_toml_value(dict(objective.fixed)),
        "space": as_toml_value(objective.space),
        "method": method,
        "folds": folds or 0,
        "model": describe_model(model),
        "data": {"train": describe_data(source(train, batch)), "valid": describe_data(source(valid, batch))},
        "optimizer": as_toml_value(objective.optimizer),
        "settings": as_toml_value(dict(sorted(objective.settings.items()))),
        "seed": objective.seed,
    }


def open_folder(folder: Path, about: RunRecord, resume: bool, overwrite: bool, join: bool) -> Lock:
    """The search's folder, with ``run.toml`` to tell it by; whoever joins leaves it as it is."""
    old = read_record(folder) if join else None
    if old is not None and old["kind"] == "search":
        lock = claim(folder, shared=True)
        check_same_run(folder, old, headed("search", old["id"], about))
        return lock
    return open_run(folder, "search", lambda: about, resume=resume or join, overwrite=overwrite)


def open_study(folder: Path | None, higher: bool, prune: bool) -> Any:
    """The study, from its journal if there is one."""
    package = optuna()
    storage: Any = None
    if folder is not None:
        storage = package.storages.JournalStorage(open_journal(folder / JOURNAL, run_id(folder)))
    study = package.create_study(
        storage=storage,
        study_name="search",
        load_if_exists=True,
        direction="maximize" if higher else "minimize",
    )
    study.pruner = package.pruners.MedianPruner(n_warmup_steps=3) if prune else package.pruners.NopPruner()
    return study


def fail_stale(study: Any, rank: int | None = None) -> None:
    """Trials that a killed process left unfinished are given up; their points are tried again first.

    ``rank``: only those of that worker, which starts again.
    """
    state = optuna().trial.TrialState
    for trial in study.get_trials(states=(state.RUNNING,)):
        if rank is None or trial.user_attrs.get(RANK) == rank:
            study.tell(trial.number, state=state.FAIL)
            if trial.params:
                study.enqueue_trial(trial.params)


def optimize(study: Any, objective: Callable[[Any], float], trials: int, seed: int) -> None:
    """Try points until so many are done or under way, whoever does them.

    Each is drawn by a sampler of its own, seeded by how many came before: a search that goes on after a fault
    draws what it would have drawn without.
    """
    state = optuna().trial.TrialState
    counted = (state.COMPLETE, state.PRUNED, state.RUNNING)
    while (done := len(study.get_trials(deepcopy=False, states=counted))) < trials:
        mixed = np.random.SeedSequence((seed, done))
        study.sampler = optuna().samplers.TPESampler(seed=int(mixed.generate_state(1)[0]))
        try_one(study, objective)


@dataclasses.dataclass(frozen=True)
class Share:
    """One worker's share of a search, in a process of its own; a lost one's trials are tried again."""

    folder: Path
    higher: bool
    seed: int
    prune: bool
    objective: Objective
    trials: int

    def __call__(self, rank: int) -> None:
        """Try points until enough are done, by whomever."""
        study = open_study(self.folder, self.higher, self.prune)
        fail_stale(study, rank)

        def signed(trial: Any) -> float:
            trial.set_user_attr(RANK, rank)
            return self.objective(trial)

        optimize(study, signed, self.trials, self.seed + 1000 * (rank + 1))


def tuned_so_far(study: Any, objective: Objective, metric: str, higher: bool, about: dict[str, Any]) -> Tuned:
    """What the study knows now."""
    done = study.get_trials(states=(optuna().trial.TrialState.COMPLETE,))
    if not done:
        raise TorchliftError("no trial came to its end: widen the space, or lower the learning rates.")
    best = study.best_trial
    values = objective.values(optuna().trial.FixedTrial(best.params))
    trials = [
        Trial(t.number, t.params, t.value, t.state.name.lower(), t.duration and t.duration.total_seconds())
        for t in study.trials
    ]
    return Tuned(best.params, best.value, values, objective.arm(values), metric, higher, trials, about)
