"""MobileNetV2 (Sandler et al. 2018) and ShuffleNet (Zhang et al. 2018) for images of 32 × 32, of any size."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d

MobileStage = tuple[int, int, int, int]
"""Expansion, channels, blocks, stride."""

MOBILE: tuple[MobileStage, ...] = (
    (1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip
"""The paper's stages, with a stride of 1 in the second, as images of 32 × 32 need."""


def conv_norm_relu(inputs: int, outputs: int, size: int = 1, relu: bool = True, **more: Any) -> nn.Sequential:
    """A convolution that keeps the size, batch norm, and ReLU6 or none."""
    conv = nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False, **more)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), *([nn.ReLU6()] if relu else []))


def classified(channels: int, classes: int) -> nn.Sequential:
    """The mean over places, and a linear map."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


class Inverted(nn.Module):
    """x ↦ [x +] narrow(depthwise(widen(x))); the sum where the shape stays."""

    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int) -> None:
        super().__init__()
        wide, self.same = inputs * expansion, stride == 1 and inputs == outputs
        self.body = nn.Sequential(
            *([conv_norm_relu(inputs, wide)] if expansion > 1 else []),
            conv_norm_relu(wide, wide, 3, stride=stride, groups=wide),
            conv_norm_relu(wide, outputs, relu=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        return x + self.body(x) if self.same else self.body(x)


def mobilenet(
    stages: Sequence[MobileStage] = MOBILE,
    stem: int = 32,
    head: int = 1280,
    stride: int = 1,
    classes: int = 10,
) -> nn.Sequential:
    """MobileNetV2; without numbers that of the paper but for the strides."""
    layers: list[nn.Module] = [conv_norm_relu(3, stem, 3, stride=stride)]
    width = stem
    for expansion, channels, blocks, first in stages:
        for number in range(blocks):
            layers.append(Inverted(width, channels, expansion, first if number == 0 else 1))
            width = channels
    return nn.Sequential(*layers, conv_norm_relu(width, head), classified(head, classes))


class Shuffled(nn.Module):
    """x ↦ relu(x + f(x)), or with a stride relu([pool(x), f(x)]); f mixes within groups and between them."""

    def __init__(self, inputs: int, outputs: int, stride: int, groups: int) -> None:
        super().__init__()
        own, middle = outputs - inputs if stride > 1 else outputs, outputs // 4
        self.groups, self.stride = groups, stride
        self.reduce = conv_norm_relu(inputs, middle, groups=groups)
        self.spatial = conv_norm_relu(middle, middle, 3, relu=False, stride=stride, groups=middle)
        self.expand = conv_norm_relu(middle, own, relu=False, groups=groups)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        mixed = self.reduce(x).unflatten(1, (self.groups, -1)).transpose(1, 2).flatten(1, 2)
        mixed = self.expand(self.spatial(mixed))
        if self.stride == 1:
            return torch.relu(x + mixed)
        return torch.relu(torch.cat([avg_pool2d(x, 3, self.stride, 1), mixed], 1))


def shufflenet(
    widths: Sequence[int] = (200, 400, 800), blocks: Sequence[int] = (4, 8, 4), stem: int = 24,
    stride: int = 1, groups: int = 2, classes: int = 10,
) -> nn.Sequential:  # fmt: skip
    """ShuffleNet with two groups; without numbers that of the paper but for its first strides."""
    layers: list[nn.Module] = [conv_norm_relu(3, stem, 3, stride=stride)]
    width = stem
    for channels, count in zip(widths, blocks, strict=True):
        for number in range(count):
            layers.append(Shuffled(width, channels, 2 if number == 0 else 1, groups))
            width = channels
    return nn.Sequential(*layers, classified(width, classes))
