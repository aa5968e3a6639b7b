"""Batches of (x, y) for lifted training: tensors stay in memory, loaders are iterated."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

Data = tuple[Tensor, Tensor] | Dataset[Any] | Iterable[tuple[Tensor, Tensor]]


def like_model(model: nn.Module, x: Tensor) -> Tensor:
    """x on the model's device and in its precision."""
    return x.to(next(model.parameters()))


def as_pair(data: Any) -> tuple[Tensor, Tensor] | None:
    """(x, y) if that is what the data are."""
    if isinstance(data, tuple | list) and len(data) == 2 and all(isinstance(part, Tensor) for part in data):
        return data[0], data[1]
    return None


def whole(model: nn.Module, data: Data) -> tuple[Tensor, Tensor]:
    """All samples at once, for methods that keep every state."""
    pair = as_pair(data)
    if pair is None:
        parts = list(_loader(data, 1024, None))
        pair = torch.cat([b[0] for b in parts]), torch.cat([b[1] for b in parts])
    x, y = pair
    return like_model(model, x), y.to(next(model.parameters()).device)


def batches(
    model: nn.Module, data: Data, size: int, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """One epoch, shuffled."""
    pair = as_pair(data)
    if pair is not None:
        x, y = pair
        for index in torch.randperm(len(x), generator=generator).split(size):
            yield like_model(model, x.index_select(0, index)), y[index].to(next(model.parameters()).device)
    else:
        for x, y in _loader(data, size, generator):
            yield like_model(model, x), y.to(next(model.parameters()).device)


def _loader(data: Any, size: int, generator: torch.Generator | None) -> Iterable[tuple[Tensor, Tensor]]:
    if isinstance(data, Dataset) and not isinstance(data, DataLoader):
        return DataLoader(data, size, shuffle=generator is not None, generator=generator)
    return data


@torch.no_grad()
def metric(model: nn.Module, data: tuple[Tensor, Tensor]) -> float:
    """Accuracy for class indices, mean squared error otherwise."""
    x, y = data
    training = model.training
    model.eval()
    out = torch.cat([model(like_model(model, part)) for part in x.split(4096)]).to(y.device)
    model.train(training)
    if y.is_floating_point():
        return float((out - y.reshape(out.shape)).square().mean())
    return float((out.argmax(1) == y).double().mean())
