"""``train``: ``tl.fit`` with a lifted method as its recipe, on the model itself."""

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from torchlift.convex.activations import Act, Activation
from torchlift.core import Batch, Problem, Task, masks_of
from torchlift.errors import TorchliftError
from torchlift.loss import inputs_and_target
from torchlift.methods.lifted.bcd import BCD
from torchlift.methods.lifted.data import LiftedData, all_samples, as_pair, like_model, metric, pairs
from torchlift.methods.lifted.history import Trained, lifted_row
from torchlift.methods.lifted.isgm import ISGM
from torchlift.methods.lifted.lift import OutputLoss, output_activation
from torchlift.methods.lifted.methods import Method, as_method, named_loss
from torchlift.methods.lifted.problem import LiftedProblem
from torchlift.methods.lifted.read import check_precision, check_reading
from torchlift.methods.lifted.shard import Shard
from torchlift.methods.lifted.splitting import Splitting
from torchlift.train import DurableFit, Engine, Run, Settings, Source, rng, source
from torchlift.train.batches import Loader
from torchlift.train.progress import Progress
from torchlift.train.run import fit
from torchlift.train.run.checks import few_samples


def train(
    model: nn.Module,
    data: LiftedData,
    *,
    method: str | Method = "isgm",
    penalty: str = "bregman",
    mu: float | Sequence[float] = 1.0,
    loss: str | Activation = "cross_entropy",
    epochs: int = 10,
    valid: tuple[Tensor, Tensor] | None = None,
    seed: int = 0,
    progress: bool = True,
    shard: Shard | None = None,
    **options: Any,
) -> Trained:
    """min loss(y, v_{L+1}) + Σ_l μ_l P_l(u_l, v_l) over weights and states; the weights end in ``model``.

    ``method``: "bcd" (all samples, exact blocks), "isgm" (mini-batches), "contrastive", "splitting",
    "unified" or "soft", with its options as keywords (``order=``, …), or a value such as ``BCD(...)``.
    ``loss``: "cross_entropy", "mse" (½‖v − y‖²), "bce", or any activation, whose Bregman penalty it is.
    Exact blocks ("bcd", "isgm", "splitting") need a chain of layers; "contrastive" and "unified" take
    networks with skips, read as K u, M u = V z, z = σ(W u + b).

    Under ``torchrun`` every process gives the same data and takes its slice of every batch. With ``shard``
    (BCD and splitting alone) every process gives samples of its own. For a run that has a folder, resumes and
    reports, use ``tl.fit(recipe=lifted.BCD(...))``: every method is a lift.
    """
    chosen = as_method(method, options, penalty, mu)
    check_precision(model)
    device = next(model.parameters()).device
    batches = batches_of(model, data, chosen)
    held_out = None if valid is None else source((like_model(model, valid[0]), valid[1]), 4096)
    task = Task(model, OutputLoss(named_loss(loss)))
    chosen = without_batch_size(chosen)
    check_trainable(chosen, task, few_samples(batches, device), shard)
    if shard is None:
        result = fit(
            task,
            batches,
            held_out,
            recipe=chosen,
            optimizer=torch.optim.Adam,
            epochs=epochs,
            metric=read_metric,
            seed=seed,
            device=str(device),
            keep_zeros=bool(masks_of(model)),  # zeros that nobody recorded are weights like all
            progress=progress,
        )
        trained, rows, seconds = result.model, result.history, result.seconds
    else:
        run = Run(
            train=batches,
            valid=held_out,
            engine=Engine(device),
            settings=Settings(optimizer=torch.optim.Adam),
            epochs=epochs,
            seed=seed,
            metric=read_metric,
            progress=Progress(progress),
        )
        trained, rows, seconds = train_shard(chosen, task, shard, run)
    take_weights(model, trained)
    names = tuple(key.removeprefix("energy ") for key in rows[-1] if key.startswith("energy "))
    return Trained(model, [lifted_row(row) for row in rows], seconds, names)


def check_trainable(method: Method, task: Task, batch: Batch, shard: Shard | None) -> None:
    """Raise what is wrong with the model before anything is measured or trained."""
    if shard is not None and not isinstance(method, BCD | Splitting):
        raise TorchliftError(
            f"lifted.train: {type(method).__name__} takes no shard=: start it by torchrun with the same data "
            "everywhere, and every process takes its slice of every batch."
        )
    with rng.scope():
        lifted = method.lift(task)
        check_reading(lifted.task.model, lifted.task.model, lifted.pair(batch)[0])


def train_shard(
    method: Method, task: Task, shard: Shard, run: Run
) -> tuple[nn.Module, list[dict[str, Any]], float]:
    """One of several processes with samples of their own: its model, its history, its seconds.

    The loop is that of ``tl.fit``, with the engine of one process: under torchrun ``tl.fit`` takes every
    batch to be held by all processes and hands each a slice of it, but a shard's samples are nowhere else,
    and the blocks all-reduce their sums themselves.
    """
    assert isinstance(method, BCD | Splitting)
    start_together(task.model, shard)
    fitter = DurableFit(run)
    with rng.scope(run.seed):
        lifted = method.problem(copy.deepcopy(task), output_activation(task, type(method).__name__), shard)
        lifted.author = method
        fitted = fitter(lifted, name="lifted", **method.settings)
    return method.project(lifted).model, fitted.rows, fitter.account.seconds


@torch.no_grad()
def take_weights(model: nn.Module, trained: nn.Module) -> None:
    """Weights and slopes of a trained copy, into the model."""
    model.load_state_dict(trained.state_dict())
    for own, other in zip(model.modules(), trained.modules(), strict=True):
        match own, other:
            case nn.LeakyReLU(), nn.LeakyReLU():
                own.negative_slope = other.negative_slope
            case Act(), Act():
                own.activation = other.activation
            case _:
                pass


def batch_size_of(method: Method) -> int:
    """Samples in a batch."""
    return getattr(method, "batch_size", None) or (200 if isinstance(method, ISGM) else 100)


def without_batch_size(method: Method) -> Method:
    """The method, which takes the batches it is given."""
    return method if isinstance(method, BCD | Splitting) else dataclasses.replace(method, batch_size=None)


@torch.no_grad()
def start_together(model: nn.Module, shard: Shard) -> None:
    """All processes start from the first one's weights."""
    for tensor in model.state_dict().values():
        tensor.copy_(shard.first(tensor))


def batches_of(model: nn.Module, data: LiftedData, method: Method) -> Source:
    """All samples at once for methods that keep every state, mini-batches for the others."""
    wanted = batch_size_of(method)
    chunk = method.chunk if isinstance(method, BCD) else None
    keeps = isinstance(method, Splitting) or (isinstance(method, BCD) and chunk is None)
    if keeps or as_pair(data) is not None:
        x, y = all_samples(model, data)
        size = len(x) if keeps else chunk or wanted
        while 1 < size < len(x) and len(x) % size == 1:  # a last batch of one sample would be left out
            size += 1
        return source((x, y), max(size, 1))
    if isinstance(data, DataLoader):
        return Checked(data)
    if isinstance(data, Dataset):
        return Checked(DataLoader(data, chunk or wanted, shuffle=True))
    return FixedBatches(data)


class Checked(Loader):
    """A loader whose batches are looked at."""

    def ordered(self) -> Iterator[Batch]:
        """One pass."""
        return pairs(super().ordered(), 0, None)


class FixedBatches(Source):
    """Batches as they are given, every epoch."""

    fixed = False
    skips = False

    def __init__(self, data: Any) -> None:
        self.data = list(pairs(data, 0, None))

    def steps(self) -> int:
        """How many were given."""
        return len(self.data)

    def epoch(self, key: int, start: int = 0, indexed: bool = False) -> Iterator[Batch]:
        """One pass."""
        del key, start, indexed
        return iter(self.data)

    def ordered(self) -> Iterator[Batch]:
        """One pass."""
        return iter(self.data)


def read_metric(problem: Problem, batch: Batch) -> float:
    """Accuracy for class indices, mean squared error otherwise."""
    task = problem.task if isinstance(problem, LiftedProblem) else problem
    assert isinstance(task, Task)
    return metric(task.model, inputs_and_target(batch))
