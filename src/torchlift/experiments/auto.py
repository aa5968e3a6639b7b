"""``auto``: from a model, data and constraints to the model to ship, inside a budget."""

import functools
import shutil
import tempfile
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from torchlift.core import Supervised, Task
from torchlift.errors import TorchliftError
from torchlift.experiments.arm import AnyRecipe, Arm, CopyOf, Setup, check_settings
from torchlift.experiments.auto_result import AutoResult
from torchlift.experiments.auto_search import AutoSearch
from torchlift.experiments.candidates import accepted
from torchlift.experiments.constraints import Constraints
from torchlift.experiments.executors import Executor, current, opened, process_count
from torchlift.experiments.ledger import Ledger
from torchlift.train import engine
from torchlift.train.batches import Source, Tensors, source
from torchlift.train.engines import processes as processes_of_run
from torchlift.train.optimizers import ADAMW
from torchlift.train.run.checks import as_task, check_run
from torchlift.train.run.fit import labels
from torchlift.train.run.folder import open_run
from torchlift.train.run.identity import describe_data, describe_model, describe_setting
from torchlift.train.run.lock import claims
from torchlift.train.run.names import named_optimizer
from torchlift.train.run.record import RunRecord, run_id
from torchlift.train.run.values import as_toml_value


@claims()
def auto(
    model: nn.Module,
    train: Any,
    valid: Any = None,
    *,
    test: Any = None,
    bytes: float | None = None,
    latency: float | None = None,
    accuracy: float | None = None,
    minutes: float | None = None,
    budget: float | None = None,
    candidates: Mapping[str, AnyRecipe | Arm] | None = None,
    executor: Executor = None,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    **settings: Any,
) -> AutoResult:
    """Search recipes and chains for the model to ship, and say why it is the one.

    Every trial ends in a delivered model: trained, shrunk, packed, read back, measured. Trials have half of
    the budget, under ``bytes`` a quarter, and get longer from rung to rung (successive halving; points drawn
    by Optuna); plain training is in every rung. The rest trains the winner on, from the weights of its trial.
    A candidate that the model does not accept, or that fails, is dropped with its reason; a fault of the
    machine ends the search.

    Args:
        model: the model, or a :class:`Task` with its loss; it is left alone, all trials start from its
            weights.
        train: as for :func:`torchlift.fit`; ``Splits`` of :mod:`torchlift.data` are all three parts at once.
        valid: what promotes, and what the choice goes by.
        test: scored for every model that is delivered; nothing goes by it.
        bytes: the largest packed file wanted.
        latency: the most milliseconds of a call on one sample wanted, on this machine.
        accuracy: the least validation metric wanted; the smallest file that reaches it is taken. Without
            it the best metric is, or the smallest file above the lower bound of its 90 % interval (Wilson).
        minutes: the time the whole search may take (10, where no ``budget`` is given).
        budget: or the FLOPs of all trials together, in epochs of plain training.
        candidates: names to recipes or arms; else :func:`~torchlift.experiments.candidates.portfolio`.
        executor: where the trials of a rung go, see :mod:`torchlift.experiments.executors`.
        seed: of everything random.
        out: a folder: ``model.tl``, ``card.json``, ``report.html``, every trial's run. With it the search is
            durable.
        resume: go on with what is in ``out``.
        overwrite: start again in ``out``.
        settings: further settings of :func:`torchlift.fit` (``schedule="cosine"``, ``keep="best"`` unless
            given).
    """
    if all(hasattr(train, attribute) for attribute in ("train", "valid", "test", "schema")):  # Splits
        settings.setdefault("schema", train.schema)
        valid, test = (train.valid if valid is None else valid), (train.test if test is None else test)
        train = train.train
    if valid is None:
        raise TorchliftError("auto chooses by validation data: pass valid=, or Splits of tl.data.")
    if processes_of_run() > 1:
        raise TorchliftError("auto shares its trials by executor=: start it without torchrun.")
    if minutes is not None and budget is not None:
        raise TorchliftError("give one budget: minutes= of time, or budget= of plain epochs by FLOPs.")
    if budget is None:
        minutes = 10.0 if minutes is None else minutes
    if not (minutes or budget or 0) > 0:
        raise TorchliftError(f"the budget is above 0, got {minutes if budget is None else budget!r}.")
    check_settings(settings, "auto", "budget= or minutes=")
    started = time.time()
    optimizer = named_optimizer(settings.get("optimizer", ADAMW))
    chosen: dict[str, Any] = (
        {"schedule": "cosine", "keep": "best"} | settings | {"optimizer": optimizer, "progress": False}
    )
    task = as_task(model, chosen.pop("loss", "cross_entropy"))
    batch = int(chosen.get("batch_size", 128))
    data = source(train, batch)
    check_run(task, data, engine().device)
    higher, rate = metric_direction(task, chosen)
    constraints = Constraints(bytes, latency, accuracy, higher, rate)
    kept, dropped = accepted(candidates, task, constraints, data, batch, seed)
    folder = Path(out) if out is not None else Path(tempfile.mkdtemp(prefix="torchlift-auto-"))
    names: RunRecord = {"folders": [], "constraints": str(constraints), "seed": seed}
    names |= {"budget": budget or 0.0, "minutes": minutes or 0.0}
    record = functools.partial(describe_auto, task, (train, valid), kept, chosen, batch, names)
    try:
        open_run(folder, "auto", record, resume=resume, overwrite=overwrite)
        setup = Setup(CopyOf(task), (train, valid, test), chosen | {"equal_cost": True})
        held_out = source(valid, batch, shuffle=False)
        samples = predictions(held_out, batch) if rate else 0
        with opened(current(executor)) as pool:
            workers = process_count(executor) if isinstance(executor, str | int) else 1
            ledger = Ledger(folder / "ledger.jsonl", run_id(folder))
            search = AutoSearch(
                setup,
                kept,
                constraints,
                seed,
                samples,
                folder,
                ledger,
                pool,
                workers,
                started,
                budget,
                minutes,
            )
            search.run()
        result = search.finish(dropped)
    except BaseException:
        if out is None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    if out is None:  # the files live as long as what names them
        weakref.finalize(result, shutil.rmtree, folder, ignore_errors=True)
    return result


def metric_direction(task: Task, settings: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether a higher metric is better, and whether it is a share of the samples."""
    if settings.get("metric") is not None:
        return True, False
    loss = task.loss
    return (
        (loss.higher_is_better, loss.metric == "accuracy") if isinstance(loss, Supervised) else (False, False)
    )


def predictions(data: Source, batch: int) -> int:
    """How many labels an accuracy is the share of: one per sample, or per position of a sequence."""
    return labels(data) if isinstance(data, Tensors) else data.steps() * batch


def describe_auto(
    task: Task,
    data: tuple[Any, Any],
    kept: Mapping[str, Arm],
    settings: Mapping[str, Any],
    batch: int,
    names: RunRecord,
) -> RunRecord:
    """What identifies a search: a folder made with anything else is not resumed."""
    splits = zip(("train", "valid"), data, strict=True)
    return names | {
        "model": describe_model(task.model),
        "data": {
            name: describe_data(None if samples is None else source(samples, batch))
            for name, samples in splits
        },
        "loss": describe_setting(task.loss),
        "candidates": {name: describe_setting(arm) for name, arm in kept.items()},
        "settings": as_toml_value(
            {k: v for k, v in sorted(settings.items()) if k not in ("progress", "schema")}
        ),
    }
