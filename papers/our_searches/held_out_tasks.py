"""Ten tasks that nothing here was tuned on: models, data and lengths, fixed before the contest."""

import dataclasses
import math
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from typing import Any

import torch
from sklearn.datasets import make_classification, make_friedman1
from torch import Tensor, nn

from torchlift.data import Splits, load, multi30k, windows
from torchlift.models import GPT


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """A model, with and without norms, its data, and the steps of plain AdamW whose time every arm has."""

    make: Callable[..., nn.Module]
    data: Callable[[str | None], Splits]
    steps: int
    batch_size: int = 64
    norms: bool = False
    """Whether ``make(norm=True)`` is the same network with batch normalization."""
    loss: str = "cross_entropy"


class Convolutions(nn.Sequential):
    """3 × 3 convolutions of the widths, each behind the first with stride 2; mean over the map; linear."""

    def __init__(self, channels: int, widths: tuple[int, ...], stride: int = 1, norm: bool = False) -> None:
        layers: list[nn.Module] = []
        for number, (below, above) in enumerate(pairwise((channels, *widths))):
            layers.append(nn.Conv2d(below, above, 3, stride if number == 0 else 2, 1))
            layers += [nn.BatchNorm2d(above)] if norm else []
            layers.append(nn.ReLU())
        head = nn.Linear(widths[-1], 10)
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)


class Perceptron(nn.Sequential):
    """Linear layers with ReLU between."""

    def __init__(self, *widths: int, norm: bool = False) -> None:
        layers: list[nn.Module] = [nn.Flatten()]
        for below, above in pairwise(widths[:-1]):
            layers += [nn.Linear(below, above), *([nn.BatchNorm1d(above)] if norm else []), nn.ReLU()]
        super().__init__(*layers, nn.Linear(widths[-2], widths[-1]))


class CharGRU(nn.Module):
    """Characters, one GRU, characters."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the next character, batch × time × vocabulary."""
        return self.head(self.gru(self.embed(tokens))[0])


class Residual(nn.Module):
    """x + W₂ tanh(W₁ x)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """The sum."""
        return x + self.down(torch.tanh(self.up(x)))


def residual_perceptron(inputs: int, width: int, blocks: int) -> nn.Sequential:
    """A regression by residual blocks."""
    return nn.Sequential(
        nn.Linear(inputs, width), *(Residual(width) for _ in range(blocks)), nn.Linear(width, 1)
    )


class ViT(nn.Module):
    """Patches of 4 × 4 pixels, learned positions, pre-norm encoder blocks, mean, linear."""

    def __init__(self, width: int = 48, depth: int = 2, heads: int = 4, size: int = 32) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.positions = nn.Parameter(0.02 * torch.randn(1, (size // 4) ** 2, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of ten classes."""
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.norm(self.blocks(tokens).mean(1)))


class Separable(nn.Module):
    """x + pointwise(depthwise(x)), each with its batch normalization."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        """The sum."""
        return torch.relu(x + self.path(x))


def separable(width: int = 24) -> nn.Sequential:
    """A stride-4 stem, two separable blocks at 7 × 7, mean, linear."""
    stem = [nn.Conv2d(1, width, 5, 4, 2, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    blocks = [Separable(width), Separable(width)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


@cache
def images(name: str, train: int, data: str | None) -> Splits:
    """The first training images; 1,000 to choose by, 4,000 to report on."""
    whole = load(name, data)
    counts = ((whole.train, train), (whole.valid, 1000), (whole.test, 4000))
    first, valid, test = ((x[:count], y[:count]) for (x, y), count in counts)
    return Splits(first, valid, test, "classification")


LENGTH = 48
"""Characters in a window."""
LETTERS = " abcdefghijklmnopqrstuvwxyzäöüß0123456789.,-'\"\n"
"""What captions are written in, in small letters; anything else is left out."""


@cache
def captions(language: int, data: str | None) -> Splits:
    """Windows of captions, by character: German is language 0, English 1."""

    def pairs(lines: list[tuple[str, str]], count: int) -> tuple[Tensor, Tensor]:
        text = "".join(line[language].lower() + "\n" for line in lines)
        tokens = torch.tensor([LETTERS.index(letter) for letter in text if letter in LETTERS])
        x, y = windows(tokens, LENGTH)
        return x[:count], y[:count]

    train, valid, test = multi30k(data)
    return Splits(pairs(train, 6000), pairs(valid, 400), pairs(test, 1000), "text")


def cut(x: Tensor, y: Tensor, train: int, valid: int, kind: Any) -> Splits:
    """The first samples to train on, the next to choose by, the others to report on."""
    end = train + valid
    return Splits((x[:train], y[:train]), (x[train:end], y[train:end]), (x[end:], y[end:]), kind)


@cache
def table(data: str | None) -> Splits:
    """Forty columns, eight classes of two clusters each."""
    del data
    x, y = make_classification(
        9000, 40, n_informative=12, n_redundant=8, n_classes=8, flip_y=0.05, random_state=7
    )
    return cut(torch.from_numpy(x).float(), torch.from_numpy(y), 5000, 1500, "classification")


@cache
def friedman(data: str | None) -> Splits:
    """10 sin(π x₀ x₁) + 20 (x₂ − ½)² + 10 x₃ + 5 x₄ and a little noise, over its deviation."""
    del data
    x, y = make_friedman1(7000, 10, noise=0.1, random_state=11)
    target = torch.from_numpy((y - y.mean()) / y.std()).float()[:, None]
    return cut(torch.from_numpy(2 * x - 1).float(), target, 4000, 1000, "regression")


@cache
def oscillator(data: str | None) -> Splits:
    """A e^(−γ t) cos(ω t + φ) at random times, dampings, frequencies, phases and amplitudes."""
    del data
    generator = torch.Generator().manual_seed(5)
    x = 2 * torch.rand(7000, 5, generator=generator) - 1
    time, damping, frequency, phase, amplitude = x.unbind(1)
    y = (1 + 0.5 * amplitude) * torch.exp(-(1 + damping) * (1 + time) / 2)
    y = y * torch.cos((3 + frequency) * (1 + time) + math.pi * phase / 2)
    return cut(x, y[:, None], 4000, 1000, "regression")


TASKS: dict[str, HeldOut] = {
    "Fashion-MNIST, CNN 8-16-24": HeldOut(
        partial(Convolutions, 1, (8, 16, 24), 2),
        partial(images, "fashion-mnist", 12_000),
        640,
        norms=True,
    ),
    "Fashion-MNIST, MLP 784-48-32-10": HeldOut(
        partial(Perceptron, 784, 48, 32, 10),
        partial(images, "fashion-mnist", 12_000),
        1500,
        norms=True,
    ),
    "German characters, GRU 80": HeldOut(
        partial(CharGRU, len(LETTERS), 80), partial(captions, 0), 320, batch_size=16
    ),
    "table 40-64-64-8": HeldOut(partial(Perceptron, 40, 64, 64, 8), table, 1500, norms=True),
    "oscillator formula, residual MLP": HeldOut(
        partial(residual_perceptron, 5, 48, 3), oscillator, 1500, loss="mse"
    ),
    "CIFAR-10, CNN 12-24-48": HeldOut(
        partial(Convolutions, 3, (12, 24, 48)),
        partial(images, "cifar10", 15_000),
        400,
        32,
        norms=True,
    ),
    "CIFAR-10, ViT 48×2": HeldOut(ViT, partial(images, "cifar10", 15_000), 320, 32),
    "Friedman's formula, MLP 10-64-64-1": HeldOut(
        partial(Perceptron, 10, 64, 64, 1), friedman, 1500, norms=True, loss="mse"
    ),
    "English characters, GPT 48×2": HeldOut(
        partial(GPT, len(LETTERS), context=LENGTH, width=48, depth=2, heads=4),
        partial(captions, 1),
        320,
        batch_size=16,
    ),
    "Fashion-MNIST, separable CNN with norms": HeldOut(
        separable, partial(images, "fashion-mnist", 12_000), 320
    ),
}
