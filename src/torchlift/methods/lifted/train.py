"""``train``: lifted training of an ordinary module, in one call of the one loop."""

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from torchlift.convex.activations import Activation
from torchlift.core import Batch, Problem, Task
from torchlift.errors import TorchliftError
from torchlift.loss import split
from torchlift.methods.lifted.bcd import BCD
from torchlift.methods.lifted.data import Data, as_pair, like_model, metric, pairs, whole
from torchlift.methods.lifted.history import Trained, told
from torchlift.methods.lifted.isgm import ISGM
from torchlift.methods.lifted.methods import Method, as_method, named_loss
from torchlift.methods.lifted.problem import LiftedProblem, energies, mean_loss
from torchlift.methods.lifted.read import NotAChainError, read
from torchlift.methods.lifted.shard import Shard
from torchlift.methods.lifted.soft import Soft
from torchlift.methods.lifted.splitting import Splitting
from torchlift.methods.lifted.unified import Unified, UnifiedISGM
from torchlift.train import DurableFit, Engine, Run, Settings, Source, engine, rng, source
from torchlift.train.batches import Loader
from torchlift.train.progress import Progress


def train(
    model: nn.Module,
    data: Data,
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
    Networks with skip connections are read as K u, M u = V z, z = σ(W u + b) and trained by ``UnifiedISGM``.

    Under ``torchrun`` every process gives the same data and takes its part of every batch. With ``shard``
    (BCD and splitting alone) every process gives samples of its own. For a run that has a folder, resumes and
    reports, use ``tl.fit(recipe=tl.recipes.Lifted(method))``.
    """
    chosen = as_method(as_chain(model, method, penalty), options)
    if shard is not None:
        start_together(model, chosen, shard)
    output = named_loss(loss)
    task = Task(model, OutputLoss(output))
    make = chosen.problem if shard is None else partial(chosen.problem, shard=shard)
    problem = make(task, penalty, mu, output)
    training = [part for part in model.modules() if part.training]
    with rng.scope(seed):
        fitter = DurableFit(run_of(model, data, valid, chosen, shard, epochs, seed, progress))
        fitted = fitter(problem, name="lifted", log=energies, **rate(chosen))
    for part in training:
        part.training = True
    return Trained(model, [told(row) for row in fitted.rows], fitter.account.seconds)


@dataclasses.dataclass(frozen=True)
class OutputLoss:
    """The Bregman penalty of an activation as a loss."""

    output: Activation

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """The mean over samples."""
        x, y = split(batch)
        return mean_loss(self.output, y, model(x))


def as_chain(model: nn.Module, method: str | Method, penalty: str) -> str | Method:
    """The method; plain ISGM of a model that is no chain of layers means the unified form."""
    if method != "isgm" or penalty != "bregman":
        known = isinstance(method, UnifiedISGM | Soft) or method in ("unified", "soft")
        if isinstance(model, Unified) and not known:
            raise ValueError(
                "lifted.train: networks in the unified form need method 'isgm', penalty 'bregman' and "
                f"one mu, got {method!r}, {penalty!r}"
            )
        return method
    if isinstance(model, Unified):
        return "unified"
    try:
        read(model)
    except NotAChainError:
        return "unified"
    return method


@torch.no_grad()
def start_together(model: nn.Module, method: Method, shard: Shard) -> None:
    """All processes start from the first one's weights."""
    if not isinstance(method, BCD | Splitting):
        raise TorchliftError(
            f"lifted.train: {type(method).__name__} takes no shard=: start it by torchrun with the same data "
            "everywhere, and every process takes its part of every batch."
        )
    for tensor in model.state_dict().values():
        tensor.copy_(shard.first(tensor))


def rate(method: Method) -> dict[str, Any]:
    """The optimizer of a method that has one."""
    if isinstance(method, BCD | ISGM | Splitting):
        return {}
    return {"lr": 1e-3 if method.lr is None else method.lr}


def run_of(
    model: nn.Module,
    data: Data,
    valid: tuple[Tensor, Tensor] | None,
    method: Method,
    shard: Shard | None,
    epochs: int,
    seed: int,
    progress: bool,
) -> Run:
    """A run in memory."""
    device = next(model.parameters()).device
    runner = engine(device) if shard is None else Engine(device)
    held = None if valid is None else source((like_model(model, valid[0]), valid[1]), 4096)
    return Run(
        train=batches_of(model, data, method),
        valid=held,
        engine=runner,
        settings=Settings(optimizer=torch.optim.Adam),
        epochs=epochs,
        seed=seed,
        metric=read_metric,
        progress=Progress(progress and runner.rank == 0),
    )


def batches_of(model: nn.Module, data: Data, method: Method) -> Source:
    """All samples at once for methods that keep every state, mini-batches for the others."""
    chunk = method.chunk if isinstance(method, BCD) else None
    keeps = isinstance(method, Splitting) or (isinstance(method, BCD) and chunk is None)
    if keeps or as_pair(data) is not None:
        x, y = whole(model, data)
        size = len(x) if keeps else chunk or size_of(method)
        while 1 < size < len(x) and len(x) % size == 1:  # a last batch of one sample would be left out
            size += 1
        return source((x, y), max(size, 1))
    if isinstance(data, DataLoader):
        return Checked(data)
    if isinstance(data, Dataset):
        return Checked(DataLoader(data, chunk or size_of(method), shuffle=True))
    return Given(data)


def size_of(method: Method) -> int:
    """Samples in a batch."""
    return getattr(method, "batch_size", None) or (200 if isinstance(method, ISGM) else 100)


class Checked(Loader):
    """A loader whose batches are looked at."""

    def ordered(self) -> Iterator[Batch]:
        """One pass."""
        return pairs(super().ordered(), 0, None)


class Given(Source):
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
    assert isinstance(problem, LiftedProblem)
    return metric(problem.task.model, split(batch))
