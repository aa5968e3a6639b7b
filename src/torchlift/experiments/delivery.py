"""From a run to what would be shipped: shrink, pack, read back, and measure that."""

import copy
import dataclasses
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from torchlift import deploy
from torchlift.core import Task
from torchlift.deploy.measuring import median_latency
from torchlift.errors import TorchliftError, machine_fault, one_line
from torchlift.experiments.constraints import Delivered
from torchlift.experiments.jobs import Job
from torchlift.train.batches import Source, source
from torchlift.train.checkpoint import save
from torchlift.train.evaluation import evaluate
from torchlift.train.run.result import Result

SUFFIX = ".tlift"


class OutOfTimeError(TorchliftError):
    """A trial that took longer than there was time for it."""


@dataclasses.dataclass(frozen=True)
class Trial:
    """One run of the search, a value: train at a budget, deliver, measure."""

    row: Delivered
    """What is known before: names, rung, rate, epochs."""
    job: Job
    file: Path
    deadline: float | None = None
    """In seconds since 1970: a trial that is not done by then is given up."""

    def __call__(self) -> Delivered:
        """The measured model; whatever goes wrong is a reason, and no more."""
        started = time.time()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = with_deadline(self.job, self.deadline)()
                row = delivered(self.row, result, self.file, self.job)
        except Exception as error:  # a candidate can never take the search down
            if machine_fault(error):
                raise
            row = dataclasses.replace(self.row, reason=one_line(error))
        return dataclasses.replace(row, seconds=time.time() - started)


def run_trial(trial: Trial) -> Delivered:
    """In this process or another."""
    return trial()


def with_deadline(job: Job, deadline: float | None) -> Job:
    """The run, ended after the epoch in which its time is over."""
    if deadline is None:
        return job

    def listener(row: dict[str, Any]) -> None:
        if time.time() > deadline:
            raise OutOfTimeError(f"out of time in {row['phase']!r}, epoch {row['epoch']}.")

    return dataclasses.replace(job, settings={**job.settings, "listener": listener})


def delivered(row: Delivered, result: Result, file: Path, job: Job) -> Delivered:
    """The run's model as a file, and what that is worth."""
    small = shrunk(result)
    model, packed = written(small, result.example, file)
    train, valid, test = job.data
    batch = int(job.settings.get("batch_size", 128))

    def score(data: Source) -> float:
        task = Task(model, result.task.loss)
        return evaluate(task, data, result.engine, result.measure_with).metric

    return dataclasses.replace(
        row,
        cost=result.cost,
        fit_seconds=result.seconds,
        metric=score(source(train if valid is None else valid, batch, shuffle=False)),
        test=None if test is None else score(source(test, batch, shuffle=False)),
        bytes=file.stat().st_size,
        latency_ms=latency(model, result.example),
        params=sum(p.numel() for p in small.parameters()),
        file=file.name,
        packed=packed,
        stages=tuple(phase for phase in result.phases if "stage" in phase),
    )


def latency(model: nn.Module, example: Any) -> float:
    """Milliseconds of a call on one sample."""
    return 1e3 * median_latency(model.eval(), example, 15, 3)


def shrunk(result: Result) -> nn.Module:
    """Without the channels that do nothing; as it is, where they cannot be followed."""
    model = copy.deepcopy(result.model).eval()
    try:
        return deploy.shrink(model, result.example).eval()
    except Exception as error:  # following a user's graph may raise anything; the model itself is right
        if machine_fault(error):
            raise
        return model


def written(model: nn.Module, example: Any, file: Path) -> tuple[nn.Module, str]:
    """The model read back from its packed file; where none can be written, from its tensors."""
    file.parent.mkdir(parents=True, exist_ok=True)
    ways: dict[str, Callable[[], nn.Module]] = {
        "deploy.load(file)": lambda: read_back(model, file, None, ()),
        "deploy.load(file, classes=[…])": lambda: read_back(model, file, None, own_classes(model)),
        "deploy.load(file), a traced graph": lambda: read_back(model, file, example, ()),
    }
    reason = ""
    for how, way in ways.items():
        try:
            return way(), how
        except Exception as error:  # the next way may do
            if machine_fault(error):
                raise
            reason = one_line(error)
    save(file, model.state_dict())
    return model, f"tensors only, not packed: {reason}"


def read_back(model: nn.Module, file: Path, example: Any, classes: tuple[type, ...]) -> nn.Module:
    """Write and read; one that computes something else is no copy."""
    deploy.save(model, file, example)
    return deploy.load(file, classes=classes)


def own_classes(model: nn.Module) -> tuple[type, ...]:
    """The module classes that are the user's."""
    known = ("torch.", "torchlift.", "transformers.")
    kinds = {type(part) for part in model.modules()}
    return tuple(kind for kind in kinds if not f"{kind.__module__}.".startswith(known))
