"""Batches from whatever the user has: samples in memory (the fast path), a Dataset, or a DataLoader."""

import abc
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Generator, Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from torchlift.core import Batch
from torchlift.errors import DataError
from torchlift.train import rng
from torchlift.train.columns import as_tensors
from torchlift.train.workers import patiently, resumable
from torchlift.tree import leaves, select_rows

Augment = Callable[[Tensor, Generator], Tensor]
"""``augment(x, generator) -> x`` on a whole batch; all its randomness from the generator."""


class Source(abc.ABC):
    """Where batches come from. The order of an epoch depends on its key alone."""

    fixed: bool
    """Whether every epoch shows the same samples unchanged, so that they may be indexed and cached."""
    skips: bool
    """Whether an epoch can start at a given batch (resume inside an epoch)."""

    @abc.abstractmethod
    def steps(self) -> int:
        """Batches in an epoch."""

    @abc.abstractmethod
    def epoch(self, key: int, start: int = 0, indexed: bool = False) -> Iterator[Batch]:
        """The batches of one epoch from the given one on."""

    @abc.abstractmethod
    def ordered(self) -> Iterator[Batch]:
        """Every sample once, in order, unchanged."""

    def generators(self) -> list[Generator]:
        """The random streams the source keeps for itself."""
        return []

    def state(self) -> Tensor | None:
        """The random stream the source keeps for itself, if it does."""
        return None

    def restore(self, state: Tensor | None) -> None:
        """Continue that stream."""
        del state


class Tensors(Source):
    """Samples in memory: batches by ``index_select`` on the first dimension of every tensor."""

    def __init__(self, tree: Any, batch_size: int, augment: Augment | None = None) -> None:
        self.tree, self.batch_size, self.augment = tree, batch_size, augment
        self.samples = check_data(tree)
        self.fixed, self.skips = augment is None, True
        self.device = next(leaves(tree)).device

    def steps(self) -> int:
        """⌈samples / batch size⌉; a last batch of one sample is dropped (batch norm cannot use it)."""
        full, rest = divmod(self.samples, self.batch_size)
        return max(1, full + (rest > 1))

    def epoch(self, key: int, start: int = 0, indexed: bool = False) -> Iterator[Batch]:
        """Shuffled by the key; the augmentation's randomness depends on the key and the batch."""
        generator = torch.Generator().manual_seed(key)
        order = torch.randperm(self.samples, generator=generator).to(self.device)
        for number in range(start, self.steps()):
            index = order[number * self.batch_size : (number + 1) * self.batch_size]
            batch = select_rows(self.tree, index)
            if self.augment is not None:
                batch = augmented(batch, self.augment, generator.manual_seed(rng.key(key, number)))
            yield with_index(batch, index) if indexed else batch

    def ordered(self) -> Iterator[Batch]:
        """In order, in large batches."""
        for index in torch.arange(self.samples, device=self.device).split(max(self.batch_size, 512)):
            yield select_rows(self.tree, index)


class Accumulated(Source):
    """Steps on several batches of another source, whose gradients are added up."""

    def __init__(self, inner: Source, count: int) -> None:
        self.inner, self.count = inner, count
        self.fixed, self.skips = False, inner.skips

    def steps(self) -> int:
        """⌈batches / count⌉."""
        return -(-self.inner.steps() // self.count)

    def epoch(self, key: int, start: int = 0, indexed: bool = False) -> Iterator[Batch]:
        """The inner epoch, ``count`` batches together."""
        batches = self.inner.epoch(key, start * self.count, indexed)
        for _ in range(start, self.steps()):
            yield StepBatches(itertools.islice(batches, self.count))

    def ordered(self) -> Iterator[Batch]:
        """The inner source's."""
        return self.inner.ordered()

    def generators(self) -> list[Generator]:
        """The inner source's."""
        return self.inner.generators()

    def state(self) -> Tensor | None:
        """The inner source's."""
        return self.inner.state()

    def restore(self, state: Tensor | None) -> None:
        """The inner source's."""
        self.inner.restore(state)


class StepBatches(list[Batch]):
    """The batches of one step."""


def example(source: Source, indexed: bool = False) -> Batch:
    """A batch of the size that steps take; no random stream moves."""
    state = source.state()
    with rng.scope():
        batch = next(iter(source.epoch(0, 0, indexed)))
    source.restore(state)
    return batch[0] if isinstance(batch, StepBatches) else batch


class Loader(Source):
    """A DataLoader. Its epochs follow torch's random streams, which checkpoints hold."""

    fixed = False
    skips = False

    def __init__(self, loader: "DataLoader[Any]") -> None:
        self.loader = resumable(loader)
        try:
            self.length = len(loader)
        except TypeError:  # a stream: its batches are counted once
            with rng.scope():
                self.length = sum(1 for _ in patiently(iter(self.loader)))
        if self.length == 0:
            raise DataError("the DataLoader is empty: give it at least one batch.")

    def steps(self) -> int:
        """Batches in the loader."""
        return self.length

    def epoch(self, key: int, start: int = 0, indexed: bool = False) -> Iterator[Batch]:
        """One pass over the loader."""
        del key
        assert start == 0, "a DataLoader starts its epochs at the beginning"
        assert not indexed, "a DataLoader does not say which samples it took"
        return self.ordered()

    def generators(self) -> list[Generator]:
        """The loader's own, and its sampler's."""
        samplers = (self.loader, self.loader.sampler, self.loader.batch_sampler)
        own = {
            id(g): g
            for sampler in samplers
            if isinstance(g := getattr(sampler, "generator", None), Generator)
        }
        return list(own.values())

    def state(self) -> Tensor | None:
        """The state of the loader's own generator."""
        generator = self.loader.generator
        return None if generator is None else generator.get_state()

    def restore(self, state: Tensor | None) -> None:
        """Continue the loader's own generator."""
        if state is not None and self.loader.generator is not None:
            self.loader.generator.set_state(state)

    def ordered(self) -> Iterator[Batch]:
        """One pass over the loader."""
        return patiently(iter(self.loader))


def source(data: Any, batch_size: int, augment: Augment | None = None, shuffle: bool = True) -> Source:
    """The right source for the user's data."""
    if isinstance(data, Source):
        return data
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise DataError(f"batch_size is a whole number of samples, 1 or more; got {batch_size!r}.")
    if isinstance(data, TensorDataset):
        data = data.tensors
    if isinstance(data, DataLoader | Dataset) and augment is not None:
        raise DataError("augment works on tensors in memory; a Dataset augments in its own __getitem__.")
    if isinstance(data, DataLoader):
        return Loader(data)
    if isinstance(data, Dataset):
        if not sized(data):
            raise DataError("the dataset is empty: give it at least one sample.")
        streams = isinstance(data, IterableDataset)
        return Loader(DataLoader(data, batch_size, shuffle=shuffle and not streams))
    return Tensors(as_tensors(data), batch_size, augment)


def sized(data: Any) -> bool:
    """Whether there is anything in it; a stream without a length is taken at its word."""
    try:
        return len(data) > 0
    except TypeError:
        return True


def augmented(batch: Batch, augment: Augment, generator: Generator) -> Batch:
    """The batch with its inputs augmented."""
    if not isinstance(batch, tuple):
        raise DataError("augment needs (x, y) tensors: it changes x.")
    return (augment(batch[0], generator), *batch[1:])


def with_index(batch: Batch, index: Tensor) -> Batch:
    """The batch with its samples' positions as last element."""
    return {**batch, "index": index} if isinstance(batch, Mapping) else (*batch, index)


def share(batch: Batch, rank: int, world: int) -> tuple[Batch, float, tuple[int, int, int]]:
    """A process's part of a global batch, the weight that makes the average over processes the mean, and
    its rows: the first row, the one after the last, and how many there are. Fewer samples than processes are
    every process's own."""
    whole = len(next(leaves(batch)))
    if whole < world:
        return batch, 1.0, (0, whole, whole)
    index = torch.arange(whole).tensor_split(world)[rank]
    rows = int(index[0]), int(index[-1]) + 1, whole
    return select_rows(batch, index.to(next(leaves(batch)).device)), len(index) * world / whole, rows


def check_data(tree: Any) -> int:
    """The number of samples, or one line on what is wrong with the data."""
    tensors = list(leaves(tree))
    if not tensors or any(t.ndim == 0 or len(t) == 0 for t in tensors):
        raise DataError("the data are empty: give at least one sample.")
    sizes = [len(t) for t in tensors]
    if len(set(sizes)) > 1:
        raise DataError(f"all tensors need one number of samples; got {sizes}.")
    for number, tensor in enumerate(tensors):
        if not tensor.is_floating_point() or bool(torch.isfinite(tensor.sum())):  # one pass, no copy
            continue
        finite = torch.isfinite(tensor.flatten(1) if tensor.ndim > 1 else tensor[:, None]).all(1)
        if not bool(finite.all()):  # a sum of large numbers may overflow
            row = int((~finite).nonzero()[0])
            raise DataError(
                f"tensor {number} of the data has NaN or Inf (first in sample {row}): clean it first."
            )
    return sizes[0]
