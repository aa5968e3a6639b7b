"""Short trainings of the thesis' two tasks, images and characters, for entries that need many of them."""

import dataclasses
import math
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from torchlift.data import cifar10, crop_flip, normalize, ptb, statistics, windows
from torchlift.models import CharLSTM, wide_resnet

MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]


@dataclasses.dataclass(frozen=True, eq=False)
class Bench:
    """A model to be made, data to train it on, and the number to make small."""

    name: str
    make: Callable[[], nn.Module]
    train: tuple[Tensor, Tensor]
    valid: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    batch: int
    steps: int
    measure: Callable[[Tensor, Tensor], Tensor]
    worst: float
    augment: bool = False


def small_cnn() -> nn.Module:
    """Three strided convolutions with batch norm, 6 k weights."""
    widths = (3, 8, 16, 32)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def images(folder: str | None, scale: float | None) -> Bench:
    """CIFAR-10, error in %: the small CNN, or with a scale WRN-28-4 for that part of 200 epochs."""
    (x, y), (x_test, y_test) = cifar10(folder)
    mean, std = statistics(x)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    parts = ((x[order[5000:]], y[order[5000:]]), (x[order[:5000]], y[order[:5000]]), (x_test, y_test))
    train, valid, test = ((normalize(a, mean, std), b) for a, b in parts)
    if scale is None:
        return Bench("images", small_cnn, train, first(valid, 2000), test, 64, 120, error, 90.0)
    steps = round(scale * 200 * len(train[0]) / 128)
    return Bench(
        "images", partial(wide_resnet, 28, 4), train, valid, test, 128, steps, error, 90.0, augment=True
    )


def characters(folder: str | None, scale: float | None) -> Bench:
    """Penn Treebank, bits per character: one LSTM layer of 64, or with a scale three of 300."""
    text = ptb(folder)
    symbols, length = len(text.vocabulary), 50 if scale is None else 150
    train, valid, test = (windows(part, length) for part in (text.train, text.valid, text.test))
    worst = 2 * math.log2(symbols)
    if scale is None:
        make = partial(CharLSTM, symbols, 64, 1)
        return Bench("characters", make, train, first(valid, 500), first(test, 500), 32, 100, bits, worst)
    steps = round(scale * 500 * len(train[0]) / 128)
    make = partial(CharLSTM, symbols, 300, 3, dropout=0.1)
    return Bench("characters", make, train, valid, test, 128, steps, bits, worst)


def first(pair: tuple[Tensor, Tensor], count: int) -> tuple[Tensor, Tensor]:
    """The first ``count`` samples."""
    return pair[0][:count], pair[1][:count]


def error(scores: Tensor, targets: Tensor) -> Tensor:
    """Wrong answers in percent."""
    return 100 * (scores.argmax(-1) != targets).float().mean()


def bits(scores: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy in bits."""
    return cross_entropy(scores.flatten(0, -2), targets.flatten()) / math.log(2)


def trained(
    bench: Bench, make_optimizer: MakeOptimizer, seed: int, *, longer: int = 1, test: bool = False
) -> float:
    """Train from scratch with a cosine schedule; the measure on validation or on test data."""
    torch.manual_seed(seed)
    model = bench.make()
    optimizer = make_optimizer(model.parameters())
    total = bench.steps * longer
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
    generator = torch.Generator().manual_seed(seed)
    x, y = bench.train
    for _ in range(total):
        chosen = torch.randint(len(x), (bench.batch,), generator=generator)
        batch = crop_flip(x[chosen], generator) if bench.augment else x[chosen]
        scores = model(batch)
        loss = cross_entropy(scores.flatten(0, -2), y[chosen].flatten())
        if not torch.isfinite(loss):
            return bench.worst
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return measured(bench, model, bench.test if test else bench.valid)


@torch.no_grad()
def measured(bench: Bench, model: nn.Module, pair: tuple[Tensor, Tensor]) -> float:
    """The measure over a data set, no worse than ``bench.worst``."""
    model.eval()
    total = sum(
        bench.measure(model(x), y).item() * len(x) for x, y in zip(*(p.split(500) for p in pair), strict=True)
    )
    model.train()
    value = total / len(pair[0])
    return min(value, bench.worst) if math.isfinite(value) else bench.worst
