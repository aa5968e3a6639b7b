"""One run: ``tl.fit``."""

import contextlib
import copy
import dataclasses
import functools
import json
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from torchlift.core import Lift, Loss, Problem, Supervised, Task, record_pruned
from torchlift.core.stored import KEPT, drop_stale, forget
from torchlift.errors import DivergedError, TorchliftError
from torchlift.loss import inputs_and_target
from torchlift.methods.recipe import Recipe, RecipeLike, as_recipe
from torchlift.targets import counting_card
from torchlift.train import DurableFit, History, Interrupted, Run, Settings, Store, engine, rng
from torchlift.train.batches import Accumulated, Augment, Source, Tensors, example, source
from torchlift.train.callbacks import Callback, check_callbacks, listeners
from torchlift.train.checkpoint import disk_errors, save_checkpoint, write_durable
from torchlift.train.columns import known_classes
from torchlift.train.cost import probe
from torchlift.train.engines import Engine, connected
from torchlift.train.evaluation import Score, evaluate
from torchlift.train.metrics import Metric, OverAll, as_metric
from torchlift.train.optimizers import ADAMW, OptimizerFactory
from torchlift.train.progress import Progress
from torchlift.train.run.checks import as_task, check_accepted, check_groups, check_run, one_line_steps
from torchlift.train.run.folder import forget_unstarted, has_checkpoint, open_fit
from torchlift.train.run.identity import brief, describe_data, describe_setting
from torchlift.train.run.lock import claims
from torchlift.train.run.names import named_optimizer, named_recipe
from torchlift.train.run.options import check_options
from torchlift.train.run.postconditions import check_delivered
from torchlift.train.run.probe import probe_step
from torchlift.train.run.record import fit_record
from torchlift.train.run.result import Result
from torchlift.train.run.signals import graceful
from torchlift.train.schedulers import check_schedule
from torchlift.train.settings import Schedule
from torchlift.train.teaching import taught
from torchlift.train.workers import named_worker_errors
from torchlift.tree import move

LOG = logging.getLogger("torchlift")

SHAPING = (
    "optimizer",
    "schedule",
    "epochs",
    "seed",
    "batch_size",
    "clip",
    "groups",
    "keep",
    "patience",
    "accumulate",
    "teacher",
    "augment",
    "metric",
    "precision",
    "compile",
    "keep_zeros",
    "equal_cost",
)
"""The settings that shape a result: a run is resumed only with the same ones, on the same kind of device."""


@claims()
@named_worker_errors()
@connected()
def fit(
    problem: nn.Module,
    train: Any,
    valid: Any = None,
    *,
    test: Any = None,
    recipe: str | RecipeLike | Lift | None = None,
    loss: str | nn.Module | Loss = "cross_entropy",
    optimizer: str | OptimizerFactory = ADAMW,
    schedule: Literal["constant", "cosine"] | Schedule = "constant",
    epochs: float = 10,
    batch_size: int = 128,
    accumulate: int = 1,
    clip: float | None = None,
    groups: Mapping[str, Mapping[str, Any]] | None = None,
    keep: Literal["last", "best"] = "last",
    patience: int | None = None,
    teacher: nn.Module | None = None,
    seed: int = 0,
    augment: Augment | None = None,
    metric: Any = None,
    metrics: Mapping[str, Any] | None = None,
    device: str = "auto",
    precision: str = "32",
    compile: bool = False,
    keep_zeros: bool = True,
    equal_cost: bool = False,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    save_every: float = 20.0,
    tensorboard: bool = False,
    log: Callable[[Problem], Mapping[str, float]] | None = None,
    listener: Callable[[dict[str, Any]], None] | None = None,
    callbacks: Sequence[Any] = (),
    progress: bool = True,
    schema: Mapping[str, Any] | None = None,
) -> Result:
    """Train ``problem`` by ``recipe`` and come back to a plain model; what is given is left alone.

    Args:
        problem: a model, or a :class:`Task` that holds one with its loss.
        train: ``(x, y)`` tensors or a dict of tensors (the fast path), a Dataset or a DataLoader; numpy
            arrays, lists of dicts, and tables with named columns (``datasets``, data frames) become tensors.
        valid: data of the same kind to evaluate on after every epoch; rules and ``keep`` go by them.
        test: data to score the final model on; ``Result.scores["test"]``.
        recipe: a recipe, its name (``"smol"``), a single lift (lift → fit → project),
            ``function(task, fit) -> task``, or None for plain training. One that does not accept the model
            ends the run before it starts.
        loss: ``"cross_entropy"``, ``"mse"``, ``"bce"``, ``"model"`` (``model(**batch).loss``), a loss of
            torch.nn such as ``nn.CrossEntropyLoss(label_smoothing=0.1)``, or
            ``callable(model, batch) -> scalar``.
        optimizer: a factory, called with parameter groups: ``partial(torch.optim.SGD, lr=0.1)``; or the name
            of one of torch's or torchlift's, with its own defaults: ``"adam"``, ``"avagrad"``.
        schedule: the learning rate's factor over a fit: ``"constant"``, ``"cosine"``, ``callable(t)``, or a
            scheduler of torch, stepped after every step: ``partial(OneCycleLR, max_lr=0.1)``.
        epochs: passes over the data; with ``equal_cost``, the cost of so many passes of plain training.
        batch_size: samples in a step, for data in memory and Datasets.
        accumulate: batches whose gradients are added up before the optimizer's step, for batches that do not
            fit in memory; steps and schedules count the optimizer's.
        clip: the largest norm of a gradient.
        groups: optimizer options by glob on parameter names; an ``optimizer`` among them steps that group.
        keep: the weights a fit hands on: the ``"last"``, or the ``"best"`` on validation data.
        patience: epochs without a better validation loss after which a fit ends; ``epochs`` stays the most.
        teacher: a trained network whose outputs are matched beside the targets, in every fit.
        seed: of everything random in the run.
        augment: ``augment(x, generator) -> x`` on every training batch in memory.
        metric: in place of the loss's own: ``metric(predictions, targets)`` over all samples, scikit-learn's
            and torchmetrics' too, or ``metric(problem, batch)``, averaged. Higher is better, but for names
            that end in ``_loss`` or ``_error``.
        metrics: more of them by name, for the history; the first is ``metric`` where that is None.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, …
        precision: ``"32"``, or one of Lightning Fabric's (``"bf16-mixed"``, …).
        compile: run the steps through ``torch.compile``.
        keep_zeros: hold exact zeros that a projection made, and those of weights that come pruned.
        equal_cost: count ``epochs`` in FLOPs of plain training; nothing the recipe does is free.
        out: a folder for the run. With it the run is durable: killed at any moment, it goes on with
            ``resume=True`` to the same result, bit for bit on a CPU.
        resume: go on with the run in ``out``, if there is one with the same settings.
        overwrite: start again in ``out``.
        save_every: seconds between checkpoints inside a fit.
        tensorboard: write the history for TensorBoard too.
        log: ``log(problem)`` gives more numbers for every row of the history (such as
            :class:`torchlift.analyze.Depth`) of fits for which the recipe has none.
        callbacks: functions of a row, or :class:`torchlift.train.Callback`.
        listener: ``listener(row)`` is told every new row of the history; what it raises ends the run.
        progress: show a bar on a terminal.
        schema: what inputs and targets mean, for the card; ``Splits`` of :mod:`torchlift.data` have one.
    """
    if all(hasattr(train, name) for name in ("train", "valid", "test", "schema")):  # Splits
        valid, test = (train.valid if valid is None else valid), (train.test if test is None else test)
        train, schema = train.train, train.schema if schema is None else schema
    schema = known_classes(train) if schema is None else schema
    recipe, optimizer = as_recipe(named_recipe(recipe)), named_optimizer(optimizer)
    check_options(arguments := dict(locals()))
    check_callbacks(callbacks)
    named_metrics = {name: as_metric(one) for name, one in (metrics or {}).items()}
    arguments["metric"] = as_metric(metric) or next(iter(named_metrics.values()), None)
    runner = engine(device, precision, compile)
    shaping = {name: arguments[name] for name in SHAPING} | {"device": runner.device.type}
    data = on_device(source(train, batch_size, augment), runner)
    data = data if accumulate == 1 else Accumulated(data, accumulate)
    held_out, tested = (
        None if other is None else on_device(source(other, batch_size, shuffle=False), runner)
        for other in (valid, test)
    )
    task = copy.deepcopy(as_task(problem, loss)).to(runner.device)
    if teacher is not None:
        task.loss = taught(task.loss, teacher)
    record_pruned(task) if keep_zeros else forget(task, forms=(KEPT,))
    example = check_run(task, data, runner.device, valid=held_out, test=tested)
    check_accepted(recipe, task, data, seed)
    if groups:
        check_groups(recipe, task, data, seed, groups, arguments["optimizer"])
    arguments["named_metrics"] = named_metrics
    arguments["unit"], arguments["settings"] = plain_epoch(task, data, runner), settings_of(arguments)
    folder, store = None if out is None else Path(out), None
    if folder is not None:
        step = functools.partial(
            probe_step, task, data, held_out, seed, runner.device, arguments["settings"].make_optimizer
        )
        full = functools.partial(fit_record, task, recipe, data, held_out, shaping, step)
        store = Store(folder, open_fit(folder, runner, full, resume=resume, overwrite=overwrite))
    before = copy.deepcopy(task).model
    facts = facts_of(task, recipe, shaping) | {"steps_per_epoch": data.steps()} | training_samples(data)
    if folder is not None:
        facts["data"] = describe_data(data)[:-20]  # 12 digits of the digest
    splits = [name for name, samples in (("valid", held_out), ("test", tested)) if samples is not None]
    empty = Result(Task(before, task.loss), before, [], 0.0, 0.0, 0.0, "", facts, [], example, {}, runner)
    empty = dataclasses.replace(empty, schema=schema)
    draft = functools.cache(functools.partial(card_size, empty, splits))
    with rng.scope(seed), graceful(folder is not None) as interrupted, counting_card(draft):
        run = new_run(task, data, held_out, runner, store, interrupted, arguments)
        answer, fitter = follow(recipe, task, run, folder)
        check_delivered(before, answer, first_batch(data, runner), recipe.name)
    drop_stale(answer)  # whatever the recipe did to weights that came on a grid
    result = new_result(answer, before, example, fitter, tested, facts)
    result = dataclasses.replace(result, schema=schema)
    if folder is not None and runner.rank == 0:
        save_checkpoint(folder / "model.safetensors", answer.model.state_dict())
        with disk_errors(folder):
            write_deliverable(result, folder)
            result.to_json(folder / "result.json")
            write_report(result, folder)
    for callback in callbacks if runner.rank == 0 else ():
        if isinstance(callback, Callback):
            callback.on_end(result)
    return result


def write_deliverable(result: Result, folder: Path) -> None:
    """``model.tl``, ``card.json``; a model that no file can hold leaves its card alone, with the reason."""
    try:
        result.save(folder / "model.tl")
    except TorchliftError as error:
        card = result.card | {"no_file": str(error)}
        write_durable(folder / "card.json", (json.dumps(card, indent=1) + "\n").encode())


def write_report(result: Result, folder: Path) -> None:
    """``report.html``; without the extra that draws it, the run counts all the same."""
    with contextlib.suppress(ImportError):
        from torchlift import report

        summary = json.loads((folder / "result.json").read_text())
        report.write(report.run_page(result.history, summary), folder / "report.html")


def card_size(empty: Result, splits: list[str]) -> int:
    """The bytes that the card of a run will take in the delivered file, about."""
    from torchlift.deploy.card import draft_size

    row = {"bytes_target": 123456.0, "bytes": 123456.0}
    scores = {name: Score(0.0, 0.123456) for name in splits}
    return draft_size(
        dataclasses.replace(empty, history=[row], cost=123.456, metric="accuracy", scores=scores)
    )


def new_result(
    answer: Task,
    before: nn.Module,
    example: Any,
    fitter: DurableFit,
    tested: Source | None,
    settings: dict[str, Any],
) -> Result:
    """The plain model, scored, and the account of how it was found."""
    run = fitter.run
    sources = {name: data for name, data in (("valid", run.valid), ("test", tested)) if data is not None}

    def scored(task: Task) -> dict[str, Score]:
        return {name: evaluate(task, data, run.engine, run.metric) for name, data in sources.items()}

    return Result(
        task=answer,
        before=before,
        history=run.history.rows,
        cost=fitter.account.flops / run.unit,
        flops=fitter.account.flops,
        seconds=fitter.account.seconds,
        metric=metric_name(answer, run.metric),
        settings=settings,
        phases=run.phases,
        example=example,
        scores=scored(answer),
        initial_scores=scored(Task(copy.deepcopy(before), answer.loss)),
        counts={name: labels(data) for name, data in sources.items() if isinstance(data, Tensors)},
        engine=run.engine,
        measure_with=run.metric,
    )


def new_run(
    task: Task,
    data: Source,
    held_out: Source | None,
    runner: Engine,
    store: Store | None,
    interrupted: Callable[[], bool],
    arguments: Mapping[str, Any],
) -> Run:
    """What all fits of the run share, from the arguments :func:`fit` was given."""
    first = runner.rank == 0
    folder, listener = None if store is None else store.folder, arguments["listener"]
    hearers = tuple(listeners(arguments["callbacks"])) if first else ()
    hearers = hearers if listener is None or not first else (listener, *hearers)
    if arguments["tensorboard"] and first:
        hearers = (*hearers, board(folder))
    return Run(
        train=data,
        valid=held_out,
        engine=runner,
        settings=arguments["settings"],
        epochs=arguments["epochs"],
        seed=arguments["seed"],
        metric=arguments["metric"],
        store=store,
        history=History(None if folder is None else folder / "history.jsonl", first),
        progress=Progress(arguments["progress"] and first),
        unit=arguments["unit"],
        equal_cost=arguments["equal_cost"],
        save_every=arguments["save_every"],
        interrupted=interrupted,
        listeners=hearers,
        metrics=arguments["named_metrics"],
        idle_globs={glob for glob in arguments["groups"] or {} if glob != "*"},
    )


def settings_of(arguments: Mapping[str, Any]) -> Settings:
    """What the calls of the run's fits leave open."""
    check_schedule(arguments["schedule"])
    own = {name: arguments[name] for name in ("optimizer", "schedule", "clip", "keep", "log", "patience")}
    return Settings(**own, groups=() if arguments["groups"] is None else (arguments["groups"],))


def facts_of(task: Task, recipe: Recipe, settings: Mapping[str, Any]) -> dict[str, str | int | float]:
    """The settings of a run, for its report."""
    names = {"recipe": recipe, "in short": brief(recipe), "method": recipe.title}
    head = {**names, "model": type(task.model).__name__, "loss": task.loss, **settings}
    return {k: v if isinstance(v, str | int | float) else describe_setting(v) for k, v in head.items()}


def follow(recipe: Recipe, task: Task, run: Run, folder: Path | None) -> tuple[Task, DurableFit]:
    """Run the recipe with a durable fit; its answer must be a plain task again."""
    fitter = DurableFit(run)
    try:
        answer = recipe(task, fitter)
    except Interrupted as stop:
        raise interrupted_in(folder) from stop
    except TorchliftError as error:
        if folder is not None and run.engine.rank == 0:
            if isinstance(error, DivergedError) and has_checkpoint(folder):
                raise DivergedError(f"{error} The last good checkpoint is kept in {folder}.") from error
            with noting(error):
                forget_unstarted(folder)
        raise
    if not isinstance(answer, Task):
        kind = type(answer).__name__
        raise TorchliftError(
            f"recipe {describe_setting(recipe)} returned a {kind}: it must return the projected Task."
        )
    if run.idle_globs:
        LOG.warning("groups: no fit had a parameter for %s.", ", ".join(map(repr, sorted(run.idle_globs))))
    answer.eval()
    return answer, fitter


@contextlib.contextmanager
def noting(error: Exception) -> Generator[None]:
    """What goes wrong while cleaning up after an error is told with it, not instead of it."""
    try:
        yield
    except TorchliftError as second:
        error.add_note(str(second))


def interrupted_in(folder: Path | None) -> Interrupted:
    """What to say after a signal, of what there is."""
    if folder is None or not has_checkpoint(folder):
        stop = Interrupted("stopped before the first checkpoint: the same call with resume=True starts over.")
        stop.saved = False
        return stop
    return Interrupted(f"stopped and saved in {folder}; the same call with resume=True goes on.")


def labels(data: Tensors) -> int:
    """How many labels a share is of: one per sample, or per position of a sequence."""
    targets = inputs_and_target(data.tree)[1]
    return targets.numel() if isinstance(targets, Tensor) else data.samples


def training_samples(data: Source) -> dict[str, int]:
    """How many training samples there are, where they can be counted."""
    return {"samples": data.samples} if isinstance(data, Tensors) else {}


def on_device(data: Source, runner: Engine) -> Source:
    """Data in memory move once; a loader's batches move one by one."""
    if isinstance(data, Tensors) and data.device != runner.device:
        return Tensors(move(data.tree, runner.device), data.batch_size, data.augment)
    return data


def plain_epoch(task: Task, data: Source, runner: Engine) -> float:
    """FLOPs of one epoch of plain training, by a step on a copy."""
    with one_line_steps():
        batches = data.inner.steps() if isinstance(data, Accumulated) else data.steps()
        return probe(task, first_batch(data, runner)).flops * batches


def first_batch(data: Source, runner: Engine) -> Any:
    """A batch to measure a plain step on."""
    return move(example(data), runner.device)


def metric_name(task: Task, metric: Metric | None) -> str:
    """What the metric is called."""
    if isinstance(metric, OverAll):
        return metric.name
    if metric is not None:
        return getattr(metric, "__name__", type(metric).__name__)
    return task.loss.metric if isinstance(task.loss, Supervised) else "loss"


def board(folder: Path | None) -> Callable[[dict[str, Any]], None]:
    """A listener that writes rows for TensorBoard."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise TorchliftError("tensorboard=True needs: pip install 'torchlift[tensorboard]'.") from error
    if folder is None:
        raise TorchliftError("tensorboard=True needs out=: a folder to write to.")
    writer = SummaryWriter(str(folder / "tensorboard"))

    def write(row: dict[str, Any]) -> None:
        for name, value in row.items():
            if isinstance(value, float):
                writer.add_scalar(f"{row['phase']}/{name}", value, row["step"])
        writer.flush()

    return write
