"""From a run to what would be shipped: shrink, pack, read back, and measure that."""

import copy
import dataclasses
import functools
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from torchlift import deploy
from torchlift.core import Task
from torchlift.deploy.measuring import count_macs, latencies
from torchlift.errors import TorchliftError, machine_fault, one_line
from torchlift.experiments.arm import Arm, Setup
from torchlift.experiments.constraints import Delivered
from torchlift.train.batches import source
from torchlift.train.checkpoint import disk_errors, load_checkpoint, save_checkpoint
from torchlift.train.evaluation import evaluate
from torchlift.train.history import read_history
from torchlift.train.run.result import Result

SUFFIX = ".tl"


class OutOfTimeError(TorchliftError):
    """A trial that took longer than there was time for it."""


@dataclasses.dataclass(frozen=True)
class Delivery:
    """One run of a search, a value: train an arm at a budget, deliver, measure."""

    row: Delivered
    """What is known before: names, rung, rate, epochs."""
    setup: Setup
    arm: Arm
    seed: int
    out: Path
    """The folder of its run."""
    file: Path
    deadline: float | None = None
    """In seconds since 1970: a run that is not done by then is given up."""
    start: Path | None = None
    """The weights of the trial that this run continues."""
    incumbent: tuple[Path, float] | None = None
    """Where latency is a constraint: the file of the best so far and its milliseconds, to take turns with."""

    def __call__(self) -> Delivered:
        """The measured model; a fault of the candidate is a reason, one of the machine ends the search."""
        started = time.time()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                row = self.delivered(self.trained())
        except Exception as error:
            if machine_fault(error):
                raise
            row = dataclasses.replace(self.row, reason=one_line(error), cost=spent_in(self.out))
        return dataclasses.replace(row, seconds=time.time() - started)

    def trained(self) -> Result:
        """The run, ended after the epoch in which its time is over."""
        setup = self.setup
        if self.start is not None:
            setup = dataclasses.replace(setup, make_model=Continued(setup.make_model, self.start))
        own: dict[str, Any] = {"epochs": self.row.epochs, "resume": True}
        if self.start is not None:  # the recipe finds its own zeros again
            own["keep_zeros"] = False
        if self.deadline is not None:
            own["listener"] = functools.partial(stop_after, self.deadline)
        return setup.run(self.arm, self.seed, self.out, **own)

    def delivered(self, result: Result) -> Delivered:
        """The run's model as a file, and what that is worth."""
        small = without_dead_channels(result)
        model, packed = written(small, self.file, result.card)
        _, valid, test = self.setup.split_data(self.seed)
        batch = int(self.setup.settings.get("batch_size", 128))

        def score(data: Any) -> float:
            task = Task(model, result.task.loss)
            held_out = source(data, batch, shuffle=False)
            return evaluate(task, held_out, result.engine, result.measure_with).metric

        return dataclasses.replace(
            self.row,
            cost=result.cost,
            fit_seconds=result.seconds,
            metric=score(valid),
            test=None if test is None else score(test),
            bytes=self.file.stat().st_size,
            macs=count_macs(model.eval(), result.example),
            latency_ms=self.latency(model.eval(), result.example),
            params=sum(p.numel() for p in small.parameters()),
            file=self.file.name,
            packed=packed,
            stages=tuple(phase for phase in result.phases if "stage" in phase),
        )

    def latency(self, model: nn.Module, example: Any) -> float:
        """Milliseconds of a call on one sample, in turn with the incumbent: a slow hour slows down both."""
        if self.incumbent is not None:
            file, milliseconds = self.incumbent
            other = read_model(file, self.setup)
            mine, theirs = latencies([model, other.eval()], example)
            return milliseconds * mine / theirs
        return 1e3 * latencies([model], example, 15)[0]


@dataclasses.dataclass(frozen=True)
class Continued:
    """A model with the weights that a trial has reached."""

    make_model: Callable[[], nn.Module]
    weights: Path

    def __call__(self) -> nn.Module:
        """The model, or the task, with these weights."""
        fresh = self.make_model()
        (fresh.model if isinstance(fresh, Task) else fresh).load_state_dict(load_checkpoint(self.weights))
        return fresh


def spent_in(folder: Path) -> float:
    """What a run that failed has cost, in plain epochs, to its last whole epoch."""
    rows = read_history(folder / "history.jsonl")
    return float(rows[-1]["cost"]) if rows else 0.0


def same_shapes(state: dict[str, Tensor], fresh: nn.Module) -> bool:
    """Whether a model, or a task's, has tensors of these names and shapes."""
    own = (fresh.model if isinstance(fresh, Task) else fresh).state_dict()
    return {n: t.shape for n, t in state.items()} == {n: t.shape for n, t in own.items()}


def stop_after(deadline: float, row: dict[str, Any]) -> None:
    """A listener that ends a run whose time is over."""
    if time.time() > deadline:
        raise OutOfTimeError(f"out of time in {row['phase']!r}, epoch {row['epoch']}.")


def without_dead_channels(result: Result) -> nn.Module:
    """Without the channels that do nothing; as it is, without zeros or where they cannot be followed."""
    model = copy.deepcopy(result.model).eval()
    if not any(bool((weight == 0).any()) for weight in model.parameters() if weight.ndim > 1):
        return model
    try:
        return deploy.shrink(model, result.example).eval()
    except Exception as error:  # following a user's graph may raise anything; the model itself is right
        if machine_fault(error):
            raise
        return model


def written(model: nn.Module, file: Path, card: dict[str, Any]) -> tuple[nn.Module, str]:
    """The model read back from its packed file; where none can be written, from its tensors."""
    with disk_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with disk_errors(file):
            saved = deploy.save(model, file, card=card)
        if not saved.needs_model:
            return deploy.load(file), "deploy.load(file)"
        return deploy.load(file, into=copy.deepcopy(model)), "deploy.load(file, into=model)"
    except TorchliftError as error:
        if machine_fault(error):
            raise
        save_checkpoint(file, model.state_dict())
        return model, f"tensors only, not packed: {one_line(error)}"


def read_model(file: Path, setup: Setup) -> nn.Module:
    """A delivered model; into a fresh one of the user's where the file holds weights alone."""
    try:
        return deploy.load(file)
    except TorchliftError:
        fresh = setup.make_model()
        return deploy.load(file, into=fresh.model if isinstance(fresh, Task) else fresh)
