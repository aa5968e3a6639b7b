"""Calibration data: a handful of inputs, batch by batch, without their labels."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from torchlift.channels.example_inputs import tensors
from torchlift.errors import DataError, TorchliftError
from torchlift.loss import TARGETS, call
from torchlift.train.batches import Source, share, source
from torchlift.tree import each, leaves, move

LEAST = 8
"""Fewer samples say nothing of a layer's inputs."""

BATCH = 32

SHOWN = 4
"""Shapes in a message."""


@dataclasses.dataclass(frozen=True, eq=False)
class Calibration:
    """Batches of inputs that a model takes; every time they are iterated, in this process's share."""

    batches: Source
    device: torch.device
    positional: bool
    """A batch that is a tuple is all the model's arguments; else its first entry is, and the rest are
    labels."""
    samples: int

    @classmethod
    def of(cls, model: nn.Module, data: Any, device: torch.device, batch_size: int = BATCH) -> "Calibration":
        """The user's data, checked: there are enough, they are finite, and the model takes them."""
        if data is None:
            raise DataError("compress needs calibration data: pass 64 to 1,024 inputs, without labels.")
        calibration = cls(source(data, batch_size, shuffle=False), device, False, 0)
        samples, first = counted(calibration)
        if samples < LEAST:
            raise DataError(
                f"compress needs {LEAST} calibration samples or more, got {samples}: 64 to 1,024 are best."
            )
        return dataclasses.replace(calibration, samples=samples, positional=takes_all(model, first, device))

    def raw(self) -> Iterator[Any]:
        """The batches as they come, this process's part of each."""
        ranks = (dist.get_rank(), dist.get_world_size()) if distributed() else (0, 1)
        for batch in self.batches.ordered():
            for piece in smaller(batch, getattr(self.batches, "batch_size", BATCH)):
                yield share(piece, *ranks)[0] if ranks[1] > 1 else piece

    def __iter__(self) -> Iterator[Any]:
        """Inputs on the model's device."""
        for batch in self.raw():
            yield move(inputs_of(batch, self.positional), self.device)

    def first(self, samples: int | None = None) -> Any:
        """The first batch, or its first samples."""
        batch = next(iter(self))
        return batch if samples is None else each(lambda t: t[:samples] if t.ndim else t, batch)


def distributed() -> bool:
    """Whether there are several processes."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def smaller(batch: Any, size: int) -> Iterator[Any]:
    """A batch in parts of at most so many samples."""
    count = len(next(leaves(batch)))
    for start in range(0, count, size):
        yield batch if count <= size else each(lambda t, start=start: t[start : start + size], batch)


def inputs_of(batch: Any, positional: bool) -> Any:
    """What a model takes of a batch: labels are left out."""
    if isinstance(batch, Mapping):
        return {name: value for name, value in batch.items() if name not in TARGETS}
    if isinstance(batch, tuple | list):
        return tuple(batch) if positional else (batch[0],)
    return (batch,)


def counted(calibration: Calibration) -> tuple[int, Any]:
    """How many samples there are, all of them finite, and the first batch."""
    samples, first = 0, None
    for batch in calibration.batches.ordered():
        first = batch if first is None else first
        tensors = list(leaves(inputs_of(batch, True)))
        samples += len(tensors[0])
        if any(t.is_floating_point() and not bool(torch.isfinite(t).all()) for t in tensors[:1]):
            raise DataError("the calibration data hold NaN or infinite numbers: clean them first.")
    if first is None:
        raise DataError("the calibration data are empty: pass 64 to 1,024 inputs.")
    return samples, first


def takes_all(model: nn.Module, batch: Any, device: torch.device) -> bool:
    """Whether the model takes a tuple's entries as its arguments; False: the first alone, the rest are
    labels."""
    error: Exception | None = None
    tuples = isinstance(batch, tuple | list) and len(batch) > 1
    few = move(each(lambda t: t[:2] if t.ndim else t, batch), device)
    for positional in (False, True) if tuples else (False,):
        try:
            with torch.no_grad():
                result = call(model, inputs_of(few, positional))
        except Exception as failure:  # whatever a user's model raises
            error = error or failure
            continue
        if any(t.is_floating_point() and not bool(torch.isfinite(t).all()) for t in tensors(result)):
            raise TorchliftError(
                f"{type(model).__name__} gives NaN or infinite numbers on the calibration inputs."
            )
        return positional
    said = next(iter(str(error).splitlines()), type(error).__name__)
    every = [str(tuple(t.shape)) for t in leaves(inputs_of(few, True))]
    shapes = ", ".join([*every[:SHOWN], *(["…"] if len(every) > SHOWN else [])])
    raise TorchliftError(
        f"{type(model).__name__} does not take the calibration inputs of shape {shapes} ({said}): "
        "pass batches as the model gets them."
    ) from error
