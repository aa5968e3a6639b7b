"""What the lifted entries share: MNIST as rows, dense networks by initialization, a plain loop."""

import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.data.images import mnist
from torchlift.methods.lifted.data import metric

Pair = tuple[Tensor, Tensor]


def digits(data: str | None, samples: int, test: int) -> tuple[Pair, Pair]:
    """MNIST as rows in [0, 1]: the first ``samples`` of the training and ``test`` of the test images."""
    train, tested = mnist(data)

    def rows(pair: Pair, count: int) -> Pair:
        return pair[0][:count].flatten(1).float() / 255, pair[1][:count]

    return rows(train, samples), rows(tested, test)


def mlp(sizes: Sequence[int], init: str, seed: int, activation: nn.Module | None = None) -> nn.Sequential:
    """A dense network; ``init`` is normal (std 0.1), small, xavier or scale; biases are 0.1.

    "small" is a deviation of 0.01 for layers with 600 inputs or more, and in narrower ones that which passes
    on as much of the signal.
    """
    generator = torch.Generator().manual_seed(seed)
    modules: list[nn.Module] = []
    for below, above in pairwise(sizes):
        layer = nn.Linear(below, above)
        match init:
            case "normal":
                nn.init.normal_(layer.weight, std=0.1, generator=generator)
            case "small":
                std = 0.01 * max(600 / below, 1.0) ** 0.5
                nn.init.normal_(layer.weight, std=std, generator=generator)
            case "xavier":
                nn.init.xavier_uniform_(layer.weight, generator=generator)
            case _:
                nn.init.trunc_normal_(layer.weight, std=below**-0.5, generator=generator)
        nn.init.constant_(layer.bias, 0.1)
        modules += [layer, activation or nn.ReLU()]
    return nn.Sequential(*modules[:-1])


def descend(
    model: nn.Module, train: Pair, test: Pair, optimizer: torch.optim.Optimizer, epochs: int, loss: nn.Module
) -> list[float]:
    """Ordinary training with batches of 100; the metric on test data after every epoch."""
    generator = torch.Generator().manual_seed(0)
    curve: list[float] = []
    for _ in range(epochs):
        for index in torch.randperm(len(train[0]), generator=generator).split(100):
            optimizer.zero_grad()
            loss(model(train[0][index]), train[1][index]).backward()
            optimizer.step()
        curve.append(metric(model, test))
    return curve


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Mean, deviation and the values."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return {"mean": statistics.mean(values), "sd": deviation, "values": list(values)}
