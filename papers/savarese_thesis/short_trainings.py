"""Short trainings of the thesis' two tasks, images and characters, for entries that need many of them."""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from papers.common.protocol import Drops, share_of
from papers.savarese_thesis.pruning_runs import first
from torchlift.data import cifar10, crop_flip, normalize, ptb, statistics, windows
from torchlift.models import AwdLSTM, CharLSTM, wide_resnet
from torchlift.train.settings import cosine

MakeOptimizer = Callable[..., Optimizer]
"""Of parameters and a weight decay."""


@dataclasses.dataclass(frozen=True, eq=False)
class Workload:
    """A model to be built, data to train it on, and the number to make small."""

    name: str
    make: Callable[[], nn.Module]
    train: tuple[Tensor, Tensor]
    valid: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    batch: int
    steps: int
    measure: Callable[[Tensor, Tensor], Tensor]
    worst: float
    decay: float
    """Weight decay, the same for all methods."""
    augment: bool = False
    drops: Drops | None = None
    """How the rate falls; a cosine without it."""
    device: str = "cpu"
    share: float = 1.0
    """Of the grids and trials: less than all where little of the training is wanted."""


def small_cnn() -> nn.Module:
    """Three strided convolutions with batch norm, 6 k weights."""
    widths = (3, 8, 16, 32)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def images(
    folder: str | None, stand_in: bool, epochs: float | None, count: int | None, device: str | None = None,
    widen: int = 4,
) -> Workload:  # fmt: skip
    """CIFAR-10, error in %: WRN-28 for 200 epochs; the stand-in: a small CNN for 120 steps."""
    (x, y), (x_test, y_test) = cifar10(folder)
    mean, std = statistics(x)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    pairs = ((x[order[5000:]], y[order[5000:]]), (x[order[:5000]], y[order[:5000]]), (x_test, y_test))
    train, valid, test = ((normalize(a, mean, std), b) for a, b in pairs)
    every = len(x) - 5000
    train, valid, test = (first(pair, count or len(pair[0])) for pair in (train, valid, test))
    home, batch = device or "cpu", min(64 if stand_in else 128, len(train[0]))
    if stand_in:
        steps = 120 if epochs is None else max(1, round(epochs * len(train[0]) / batch))
        return Workload(
            "images", small_cnn, train, first(valid, 2000), test, batch, steps, error, 90.0, 5e-4, device=home
        )
    steps = max(1, round((epochs or 200) * len(train[0]) / batch))
    return Workload(
        "images", partial(wide_resnet, 28, widen), train, valid, test, batch, steps, error, 90.0, 5e-4,
        augment=True, drops=Drops((0.3, 0.6, 0.8), 0.2), device=home,
        share=share_of(epochs or 200, 200, len(train[0]), every),
    )  # fmt: skip


def characters(
    folder: str | None, stand_in: bool, epochs: float | None, count: int | None, device: str | None = None,
    width: int = 300,
) -> Workload:  # fmt: skip
    """Penn Treebank, bits per character: three LSTM layers, 500 epochs; stand-in: one of 64, 100 steps."""
    text = ptb(folder)
    symbols, length = len(text.vocabulary), 50 if stand_in else 150
    train, valid, test = (windows(tokens, length) for tokens in (text.train, text.valid, text.test))
    every = len(train[0])
    train, valid, test = (first(pair, count or len(pair[0])) for pair in (train, valid, test))
    worst, home = 2 * math.log2(symbols), device or "cpu"
    batch = min(32 if stand_in else 128, len(train[0]))
    if stand_in:
        make = partial(CharLSTM, symbols, 64, 1)
        steps = 100 if epochs is None else max(1, round(epochs * len(train[0]) / batch))
        small = first(valid, 500), first(test, 500)
        return Workload("characters", make, train, *small, batch, steps, bits, worst, 1.2e-6, device=home)
    steps = max(1, round((epochs or 500) * len(train[0]) / batch))
    make = partial(AwdLSTM, symbols, width)
    drops = Drops((0.6, 0.8), 0.1)
    return Workload(
        "characters", make, train, valid, test, batch, steps, bits, worst, 1.2e-6, drops=drops, device=home,
        share=share_of(epochs or 500, 500, len(train[0]), every),
    )  # fmt: skip


def error(scores: Tensor, targets: Tensor) -> Tensor:
    """Wrong answers in percent."""
    return 100 * (scores.argmax(-1) != targets).float().mean()


def bits(scores: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy in bits."""
    return cross_entropy(scores.flatten(0, -2), targets.flatten()) / math.log(2)


def trained(
    workload: Workload, make_optimizer: MakeOptimizer, seed: int, *, longer: int = 1, test: bool = False
) -> float:
    """Train from scratch with a cosine schedule; the measure on validation or on test data."""
    torch.manual_seed(seed)
    model = workload.make().to(workload.device)
    optimizer = make_optimizer(model.parameters(), weight_decay=workload.decay)
    total = workload.steps * longer
    falling = cosine if workload.drops is None else workload.drops
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: falling(step / total))
    generator = torch.Generator().manual_seed(seed)
    x, y = workload.train
    for _ in range(total):
        chosen = torch.randint(len(x), (workload.batch,), generator=generator)
        batch = crop_flip(x[chosen], generator) if workload.augment else x[chosen]
        scores = model(batch.to(workload.device))
        loss = cross_entropy(scores.flatten(0, -2), y[chosen].to(workload.device).flatten())
        if not torch.isfinite(loss):
            return workload.worst
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return measured(workload, model, workload.test if test else workload.valid)


@torch.no_grad()
def measured(workload: Workload, model: nn.Module, pair: tuple[Tensor, Tensor]) -> float:
    """The measure over a data set, no worse than ``workload.worst``."""
    model.eval()
    total = sum(
        workload.measure(model(x.to(workload.device)).cpu(), y).item() * len(x)
        for x, y in zip(*(p.split(500) for p in pair), strict=True)
    )
    model.train()
    value = total / len(pair[0])
    return min(value, workload.worst) if math.isfinite(value) else workload.worst
