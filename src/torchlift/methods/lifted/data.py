"""Batches of (x, y) for lifted training: pairs stay in memory, loaders are iterated; all are checked."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from torchlift.errors import DataError
from torchlift.loss import evaluating
from torchlift.methods.lifted.read import check_precision

LiftedData = tuple[Any, Any] | Dataset[Any] | Iterable[tuple[Tensor, Tensor]]


def like_model(model: nn.Module, x: Tensor) -> Tensor:
    """x on the model's device and in its precision."""
    check_precision(model)
    return x.to(next(model.parameters()))


def as_pair(data: Any) -> tuple[Tensor, Tensor] | None:
    """(x, y) as tensors if the data are two of them, or two NumPy arrays; checked."""
    if not isinstance(data, tuple | list) or len(data) != 2:
        return None
    if not all(isinstance(array, Tensor) or hasattr(array, "__array__") for array in data):
        return None
    return checked(torch.as_tensor(data[0]), torch.as_tensor(data[1]))


def checked(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """(x, y), or one line on why nothing can be learnt from them."""
    for name, tensor in (("x", x), ("y", y)):
        if tensor.ndim == 0 or len(tensor) == 0:
            raise DataError(f"lifted: {name} holds no samples (shape {tuple(tensor.shape)})")
        if tensor.is_complex():
            raise DataError(f"lifted: {name} is complex; give real numbers")
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise DataError(f"lifted: {name} holds NaN or infinite values; clean the data first")
    if len(x) != len(y):
        raise DataError(f"lifted: x has {len(x)} samples, y has {len(y)}")
    return x, y


def all_samples(model: nn.Module, data: LiftedData) -> tuple[Tensor, Tensor]:
    """All samples at once, for methods that keep every state."""
    pair = as_pair(data)
    if pair is None:
        collected = list(pairs(data, 1024, None))
        pair = torch.cat([b[0] for b in collected]), torch.cat([b[1] for b in collected])
    x, y = pair
    return like_model(model, x), y.to(next(model.parameters()).device)


def pairs(data: Any, size: int, generator: torch.Generator | None) -> Iterator[tuple[Tensor, Tensor]]:
    """The pairs of one pass over a data set, a loader or any iterable of pairs; at least one."""
    if isinstance(data, Dataset) and not isinstance(data, DataLoader):
        data = DataLoader(data, size, shuffle=generator is not None, generator=generator)
    if not isinstance(data, Iterable):
        raise DataError(f"lifted: data are (x, y), a Dataset or a loader of pairs, not {type(data).__name__}")
    empty = True
    for batch in data:
        pair = as_pair(batch)
        if pair is None:
            raise DataError(f"lifted: a batch must be a pair (x, y), got {type(batch).__name__}")
        empty = False
        yield pair
    if empty:
        raise DataError(
            "lifted: the data gave no batch; a generator is used up after one pass: give a loader or tensors"
        )


@torch.no_grad()
def metric(model: nn.Module, data: tuple[Tensor, Tensor]) -> float:
    """Accuracy for class indices, mean squared error otherwise (and for a single output)."""
    x, y = data
    with evaluating(model):
        out = torch.cat([model(like_model(model, batch)) for batch in x.split(4096)]).to(y.device)
    if y.is_floating_point() or out.shape[1] == 1:
        return float((out - y.reshape(out.shape)).square().mean())
    return float((out.argmax(1) == y).double().mean())
