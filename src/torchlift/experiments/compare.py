"""``compare``: equal cost, paired seeds, one data order, plain training always in it."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from torchlift.errors import TorchliftError
from torchlift.experiments.arm import AnyRecipe, Arm, CopyOf, Setup, check_settings, run_job
from torchlift.experiments.compare_trials import Trials, best_candidates, by_name, summary, tuned
from torchlift.experiments.comparison import PLAIN, Comparison
from torchlift.experiments.executors import Executor, current, opened, run_all
from torchlift.experiments.pricing import priced_arms
from torchlift.methods.recipe import as_recipe
from torchlift.train import rng
from torchlift.train.engines import first_process
from torchlift.train.optimizers import ADAMW
from torchlift.train.run.checks import DryRun, as_task
from torchlift.train.run.folder import open_run
from torchlift.train.run.labels import folders_for
from torchlift.train.run.lock import claims
from torchlift.train.run.names import named_optimizer

Recipes = Mapping[str, "AnyRecipe | Arm | Mapping[str, Arm]"] | Sequence[str]


@claims()
def compare(
    make_model: Callable[[], nn.Module] | nn.Module,
    train: Any,
    valid: Any = None,
    test: Any = None,
    *,
    recipes: Recipes,
    seeds: int | Sequence[int] = 5,
    budget: float = 10.0,
    tune: int | Mapping[str, int] = 0,
    tuning_seeds: Sequence[int] | None = None,
    time: float | str | None = None,
    executor: Executor = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    **settings: Any,
) -> Comparison:
    """Run every recipe on every seed at the cost of ``budget`` plain epochs.

    Seeds are paired: the same initial model and data order for all recipes.

    Args:
        make_model: a function that makes a fresh model; called once per seed and recipe, under the seed. A
            model itself is copied: all seeds then start from its weights, and the table says so.
        train: as for :func:`torchlift.fit`; or ``Splits`` of :mod:`torchlift.data`, or a function that makes
            them from the seed, both without ``valid`` and ``test``.
        valid: the checkpoint of each run is chosen on these, and ``tune`` goes by them.
        test: what the table shows is measured on these, once.
        recipes: labels to recipes, their names, single lifts, or :class:`torchlift.Arm` with an optimizer and
            settings of its own; or a list of names. ``"plain"`` is always there; give your own under that
            label to change it. A label may have several candidates, a dict of arms by their names: the one
            that does best on validation data over ``tuning_seeds``, at the same price, goes into the table.
            One that does not accept the model ends the comparison before it starts.
        seeds: how many, or which.
        budget: FLOPs of each run, in epochs of plain training.
        tune: trials for each recipe, plain included, before the paired runs: its learning rate and the
            fields it declares (``tune.space.DECLARED``), on validation data, at the same
            budget, with a seed that is not in the table. 0: untuned. By label, where they differ.
        tuning_seeds: of the trials; a search has the first. The one after the table's unless given.
        time: make time the price, for FLOPs are not time: seconds for each run, or ``"1x"`` for the time
            that plain training takes for ``budget`` epochs. Short runs in turn find each speed first.
        executor: where the runs go: ``"processes"`` (one per core), a number of processes, or anything with
            ``submit(function, …) -> .result()``, such as Dask's ``Client`` or submitit's executors.
        out: a folder; every run has its own in it, and ``comparison.json`` holds the results.
        resume: go on with what is in ``out``.
        overwrite: start again in ``out``.
        progress: show a bar on a terminal.
        settings: further settings of :func:`torchlift.fit` for all runs (``keep="best"`` unless given).
    """
    executor = current(executor)
    numbers = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not numbers:
        raise TorchliftError("compare needs at least one seed.")
    check_settings(settings, "compare", "budget=")
    make = CopyOf(make_model) if isinstance(make_model, nn.Module) else make_model
    settings = {"keep": "best"} | settings | {"optimizer": named_optimizer(settings.get("optimizer", ADAMW))}
    data = train if valid is None and test is None else (train, valid, test)
    setup = Setup(make, data, settings | {"equal_cost": True})
    if any(data is None for data in setup.split_data(numbers[0])):
        raise TorchliftError("compare needs training, validation and test data: it chooses by the second.")
    labels = listed(recipes)
    check_arms(setup, by_name(labels), numbers[0])
    folder = None if out is None else Path(out)
    trials = Trials.of(tune, labels, (max(numbers) + 1,) if tuning_seeds is None else tuning_seeds)
    if shared_seeds := set(trials.seeds) & set(numbers):
        raise TorchliftError(f"seed {min(shared_seeds)} is in the table: tuning_seeds are others.")
    folders = folders_for(labels, numbers) | trials.tuning_folders(labels)
    if folder is not None and first_process():
        record = {"folders": list(folders.values())}
        open_run(folder, "comparison", lambda: record, resume=resume, overwrite=overwrite)
    if executor is not None:  # a job that lost its worker goes on from its folder
        resume, overwrite, progress = folder is not None, False, False
    shared = {"resume": resume, "overwrite": overwrite}
    spots = {key: None if folder is None else folder / name for key, name in folders.items()}
    with opened(executor) as pool:
        searches = tuned(setup, labels, trials, budget, spots, pool, **shared)
        labels |= {label: {label: search.arm} for label, search in searches.items()}
        arms, first = by_name(labels), next(iter(labels[PLAIN]))
        budgets, seconds = priced_arms(setup, arms, first, budget, time, trials.seed, folder, pool)
        several = {label: candidates for label, candidates in labels.items() if list(candidates) != [label]}
        tuning = {label: summary(search, trials.seed) for label, search in searches.items()}
        tuning |= best_candidates(setup, several, budgets, trials.seeds, folder, pool)
        names = {label: tuning[label].values["arm"] if label in several else label for label in labels}
        once = {name: label for label, name in reversed(names.items())}  # labels may have chosen the same arm
        jobs = [
            partial(
                setup.run,
                arms[name],
                seed,
                spots[label, seed],
                epochs=budgets[name],
                progress=progress,
                **shared,
            )
            for name, label in once.items()
            for seed in numbers
        ]
        runs = iter(run_all(run_job, jobs, pool))
    by_arm = {name: [next(runs) for _ in numbers] for name in once}
    results = {label: by_arm[name] for label, name in names.items()}
    plain = results[PLAIN][0]
    notes = (
        ("one model, not a function: all seeds start from its weights",) if isinstance(make, CopyOf) else ()
    )
    comparison = Comparison(
        results, numbers, budget, plain.metric, plain.scores["test"].higher_is_better, tuning, seconds, notes
    )
    if folder is not None and first_process():
        comparison.write(folder)
    return comparison


def listed(recipes: Recipes) -> dict[str, Mapping[str, Arm]]:
    """The candidates of all labels by their names, plain first; a single one is called as its label."""
    if isinstance(recipes, str):
        raise TorchliftError(f"recipes is a list of names or a dict of recipes: pass [{recipes!r}].")
    named = recipes if isinstance(recipes, Mapping) else {name: name for name in recipes}
    labels: dict[str, Mapping[str, Arm]] = {PLAIN: {PLAIN: Arm()}}
    for label, recipe in named.items():
        if isinstance(recipe, Mapping) and not recipe:
            raise TorchliftError(f"{label!r} has no candidate.")
        labels[str(label)] = recipe if isinstance(recipe, Mapping) else {str(label): Arm.of(recipe)}
    return labels


def check_arms(setup: Setup, arms: Mapping[str, Arm], seed: int) -> None:
    """Ask every arm whether it is for this model, before the first run."""
    with rng.scope(seed):
        task = as_task(setup.make_model(), setup.settings.get("loss", "cross_entropy"))
        dry_run = DryRun(setup.split_data(seed)[0], setup.settings.get("batch_size", 128))
        for name, arm in arms.items():
            if "epochs" in arm.settings:
                raise TorchliftError(f"{name!r} sets epochs: all arms have the budget= of the comparison.")
            own = task if arm.model is None else as_task(arm.model(), task.loss)
            reason = as_recipe(arm.recipe).accepts(own, dry_run)
            if reason is not None:
                raise TorchliftError(f"{name!r} is not for this model: {reason}")
