"""What a model weighs, and what it costs to run."""

import dataclasses
import statistics
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from torchlift.channels.example_inputs import taken
from torchlift.core import Stored, stored
from torchlift.errors import TorchliftError
from torchlift.flops import count_flops
from torchlift.loss import call
from torchlift.packed import tensors
from torchlift.packed.file import FRONT, Content, described_model
from torchlift.packed.sealing import SIZE
from torchlift.targets import card_bytes


@dataclasses.dataclass(frozen=True)
class Measured:
    """Numbers about a model at an example input."""

    params: int
    """Parameters, tied ones counted once."""
    nonzero: int
    """Those that are not exactly zero."""
    bits: int
    """What the parameters take: on a grid the bits of each, pruned ones none, all others by their type."""
    file_bytes: int
    """The size of the model's file, buffers included."""
    bound_bytes: int
    """The least that such a file must say: the entropy of the tensors' values, and everything else as it
    is."""
    macs: int
    """Multiply–accumulates of matrix products and convolutions, per sample."""
    latency_ms: float
    """Median time of one call at the example's batch, in milliseconds."""


def measure(
    model: nn.Module,
    example: Any,
    *,
    repeats: int = 21,
    warmup: int = 3,
    card: Mapping[str, Any] | None = None,
) -> Measured:
    """Measure a model at an example: a tensor, a tuple of arguments, or a dict of keyword arguments.

    The calls run on a copy in evaluation mode, so that the model, its mode and the random state stay as
    they are. Latency depends on the machine and on the number of threads torch is set to. ``card``: what the
    file says beside the model, counted in its bytes.
    """
    if repeats < 1:
        raise ValueError(f"measure needs at least one repeat, got repeats={repeats}")
    with torch.random.fork_rng():
        copied = taken(model, example)
        macs = count_macs(copied, example)
        latency = median_latency(copied, example, repeats, warmup)
    file_bytes, bound_bytes = file_sizes(model, card)
    parameters = list(model.parameters())
    return Measured(
        params=sum(p.numel() for p in parameters),
        nonzero=sum(int(p.count_nonzero()) for p in parameters),
        bits=count_bits(model),
        file_bytes=file_bytes,
        bound_bytes=bound_bytes,
        macs=macs,
        latency_ms=1000 * latency,
    )


def count_bits(model: nn.Module) -> int:
    """The bits of all parameters as their records have them; a zero of a mask or a grid has none."""
    records = stored(model)
    return sum(parameter_bits(p, records.get(name, Stored())) for name, p in model.named_parameters())


def parameter_bits(parameter: Tensor, record: Stored) -> int:
    """The bits of one parameter."""
    if record.precision is not None:
        return int(record.precision.sum())
    entries = parameter.numel() if record.kept is None else int(record.kept.sum())
    return 8 * entries * parameter.element_size()


def batch_size(example: Any) -> int:
    """The first dimension of the first tensor that has one."""
    sizes = (leaf.shape[0] for leaf in tree_leaves(example) if isinstance(leaf, Tensor) and leaf.ndim)
    return max(1, next(sizes, 1))


def file_size(model: nn.Module) -> int:
    """Bytes of the packed file, inside a run with its card; of its tensors alone where the model itself
    cannot be written down."""
    return file_sizes(model)[0] + card_bytes()


def file_sizes(model: nn.Module, card: Mapping[str, Any] | None = None) -> tuple[int, int]:
    """Bytes of the packed file and the least that it must say; shared tensors count once."""
    content = file_contents(model, card)
    written = tensors.write_items(content.items, keep=False)
    fixed = FRONT.size + len(content.text) + SIZE
    coded = len(zlib.compress(written.plan, 9)) + written.size
    return fixed + coded, fixed + written.ideal


def file_contents(model: nn.Module, card: Mapping[str, Any] | None = None) -> Content:
    """What the file of a model would say; its dense tensors alone where no file can hold it."""
    try:
        return described_model(model, card=card)
    except TorchliftError:
        unique = {id(t): t.detach() for t in model.state_dict().values() if isinstance(t, Tensor)}
        dense = [t for t in unique.values() if t.layout == torch.strided and not t.is_quantized]
        return Content({}, [tensors.Item(t) for t in dense], "")


def count_macs(model: nn.Module, example: Any) -> int:
    """Half the floating-point operations of one call, per sample of its batch."""
    with torch.no_grad():
        return round(count_flops(lambda: call(model, example)) / 2 / batch_size(example))


def median_latency(model: nn.Module, example: Any, repeats: int, warmup: int) -> float:
    """Seconds of one call: the median of ``repeats`` after ``warmup`` more."""
    return latencies([model], example, repeats, warmup)[0]


def latencies(models: Sequence[nn.Module], example: Any, repeats: int = 21, warmup: int = 3) -> list[float]:
    """Seconds of one call of each model, medians; they take turns, so that the machine's moods are the same
    for all."""
    seconds: list[list[float]] = [[] for _ in models]
    with torch.inference_mode():
        for _ in range(warmup + repeats):
            for model, mine in zip(models, seconds, strict=True):
                mine.append(call_seconds(model, example))
    return [statistics.median(mine[warmup:]) for mine in seconds]


def call_seconds(model: nn.Module, example: Any) -> float:
    """Seconds of this one call."""
    synchronize(example)
    start = time.perf_counter()
    call(model, example)
    synchronize(example)
    return time.perf_counter() - start


def synchronize(example: Any) -> None:
    """Wait for devices that compute in the background."""
    for device in {leaf.device for leaf in tree_leaves(example) if isinstance(leaf, Tensor)}:
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
