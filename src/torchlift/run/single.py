"""One run: ``tl.fit``."""

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from torch import nn

import torchlift
from torchlift.core import Lift, Loss, Problem, Supervised, Task, mark_pruned, release_zeros
from torchlift.errors import TorchliftError
from torchlift.recipes.recipe import RecipeLike, as_recipe
from torchlift.run.checks import as_task, check
from torchlift.run.folder import Setting, forget_unstarted, open_run
from torchlift.run.identity import describe, fingerprint, structure
from torchlift.run.result import Result
from torchlift.run.signals import graceful
from torchlift.train import DurableFit, History, Interrupted, Run, Settings, Store, engine, rng
from torchlift.train.batches import Augment, Source, Tensors, source
from torchlift.train.checkpoint import save
from torchlift.train.cost import probe
from torchlift.train.engines import Engine
from torchlift.train.evaluation import Metric, evaluate
from torchlift.train.optimizers import ADAMW, OptimizerFactory
from torchlift.train.progress import Progress
from torchlift.train.settings import Schedule
from torchlift.train.workers import watched
from torchlift.tree import move


@watched()
def fit(
    problem: nn.Module,
    train: Any,
    valid: Any = None,
    *,
    test: Any = None,
    recipe: RecipeLike | Lift | None = None,
    loss: str | Loss = "cross_entropy",
    optimizer: OptimizerFactory = ADAMW,
    schedule: Literal["constant", "cosine"] | Schedule = "constant",
    epochs: float = 10,
    batch_size: int = 128,
    clip: float | None = None,
    groups: Mapping[str, Mapping[str, Any]] | None = None,
    keep: Literal["last", "best"] = "last",
    seed: int = 0,
    augment: Augment | None = None,
    metric: Metric | None = None,
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
    progress: bool = True,
) -> Result:
    """Train ``problem`` (a model, or a :class:`Task`) by ``recipe``; the given model is left alone.

    ``train``, ``valid``, ``test``: ``(x, y)`` tensors or a dict of tensors (the fast path), a Dataset or a
    DataLoader. ``recipe``: a recipe, a single lift (lift → fit → project), or None for plain training.
    ``epochs`` are passes over the data, or with ``equal_cost`` the cost of so many plain ones.
    With ``out`` the run is durable: killed at any moment, it goes on with ``resume=True`` to the same
    result, bit for bit on a CPU. ``log(problem)`` gives more numbers for every row of the history (such as
    :class:`torchlift.analyze.Depth`) of fits for which the recipe has none. ``listener(row)`` is told every
    new row of the history; what it raises ends the run.
    """
    runner = engine(device, precision, compile)
    data = on_device(source(train, batch_size, augment), runner)
    held_out = None if valid is None else on_device(source(valid, batch_size, shuffle=False), runner)
    tested = None if test is None else on_device(source(test, batch_size, shuffle=False), runner)
    task = copy.deepcopy(as_task(problem, loss)).to(runner.device)
    (mark_pruned if keep_zeros else release_zeros)(task)
    example = check(task, data, runner.device)
    asked = record(task, recipe, data, optimizer=optimizer, schedule=schedule, epochs=epochs, seed=seed)
    asked["batch_size"] = batch_size
    asked["other"] = describe([clip, groups, keep, augment, metric, precision, keep_zeros, equal_cost])
    folder = None if out is None else Path(out)
    if folder is not None and runner.rank == 0:
        open_run(folder, asked, resume=resume, overwrite=overwrite)
    runner.barrier()
    before = copy.deepcopy(task.model)
    listeners = () if listener is None or runner.rank > 0 else (listener,)
    if tensorboard and runner.rank == 0:
        listeners = (*listeners, board(folder))
    with rng.scope(seed), graceful(folder is not None) as interrupted:
        run = Run(
            train=data,
            valid=held_out,
            engine=runner,
            settings=Settings(
                optimizer=optimizer, schedule=schedule, clip=clip, groups=groups, keep=keep, log=log
            ),
            epochs=epochs,
            seed=seed,
            metric=metric,
            store=None if folder is None else Store(folder),
            history=History(folder / "history.jsonl" if folder is not None and runner.rank == 0 else None),
            progress=Progress(progress and runner.rank == 0),
            unit=probe(task, first_batch(data, runner)).flops * data.steps(),
            equal_cost=equal_cost,
            save_every=save_every,
            interrupted=interrupted,
            listeners=listeners,
        )
        answer, fitter = follow(recipe, task, run, folder)
    parts = {"valid": held_out, "test": tested}
    result = Result(
        task=answer,
        before=before,
        history=run.history.rows,
        cost=fitter.flops / run.unit,
        flops=fitter.flops,
        seconds=fitter.seconds,
        metric=metric_name(task, metric),
        settings=asked | {"steps_per_epoch": data.steps()},
        phases=run.phases,
        example=example,
        scores={n: evaluate(answer, part, runner, metric) for n, part in parts.items() if part is not None},
        engine=runner,
        measure_with=metric,
    )
    if folder is not None and runner.rank == 0:
        save(folder / "model.safetensors", answer.model.state_dict())
        result.to_json(folder / "result.json")
    return result


def record(task: Task, recipe: Any, data: Source, **settings: Any) -> dict[str, Setting]:
    """What identifies a run: a folder made with anything else is not resumed."""
    head: dict[str, Setting] = {
        "torchlift": torchlift.__version__,
        "recipe": describe(as_recipe(recipe)),
        "model": type(task.model).__name__,
        "structure": structure(task.model),
        "loss": describe(task.loss),
        "data": fingerprint(data),
    }
    plain = {k: v if isinstance(v, str | int | float) else describe(v) for k, v in settings.items()}
    return head | plain


def follow(
    recipe: RecipeLike | Lift | None, task: Task, run: Run, folder: Path | None
) -> tuple[Task, DurableFit]:
    """Run the recipe with a durable fit; its answer must be a plain task again."""
    fitter = DurableFit(run)
    try:
        answer = as_recipe(recipe)(task, fitter)
    except Interrupted as stop:
        raise Interrupted(f"stopped and saved in {folder}; the same call with resume=True goes on.") from stop
    except TorchliftError:
        if folder is not None and run.engine.rank == 0:
            forget_unstarted(folder)
        raise
    if not isinstance(answer, Task):
        got = type(answer).__name__
        raise TorchliftError(
            f"recipe {describe(recipe)} returned a {got}: it must return the projected Task."
        )
    answer.eval()
    return answer, fitter


def on_device(data: Source, runner: Engine) -> Source:
    """Data in memory move once; a loader's batches move one by one."""
    if isinstance(data, Tensors):
        return Tensors(move(data.tree, runner.device), data.batch_size, data.augment)
    return data


def first_batch(data: Source, runner: Engine) -> Any:
    """A batch to measure a plain step on."""
    state = data.state()
    with rng.scope():
        batch = move(next(iter(data.epoch(0))), runner.device)
    data.restore(state)
    return batch


def metric_name(task: Task, metric: Metric | None) -> str:
    """What the metric is called."""
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
