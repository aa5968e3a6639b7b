"""Residual networks for small images."""

from typing import Literal

from torch import Tensor, nn
from torch.nn.functional import pad

Shortcut = Literal["projection", "pad"]


class Pad(nn.Module):
    """Option A of He et al.: every second pixel, new channels zero; no parameters."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.extra = outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        """Half the resolution, ``extra`` more channels."""
        return pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.extra // 2, self.extra - self.extra // 2))


def shortcut_path(kind: Shortcut, inputs: int, outputs: int, stride: int) -> nn.Module:
    """What is added to a block's output: its input, brought to the output's shape."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    if kind == "pad":
        return Pad(inputs, outputs)
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    """x ↦ relu(shortcut(x) + bn₂(conv₂(relu(bn₁(conv₁ x)))))."""

    def __init__(self, inputs: int, outputs: int, stride: int, shortcut: Shortcut) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = shortcut_path(shortcut, inputs, outputs, stride)
        self.relu2 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, nowhere negative."""
        residual = self.bn2(self.conv2(self.relu1(self.bn1(self.conv1(x)))))
        return self.relu2(self.shortcut(x) + residual)


class ResNet(nn.Module):
    """A stem, three stages of (depth − 2) / 6 basic blocks with 1, 2, 4 times ``width`` channels, a head.

    He et al., 2016, section 4.2. Depth 20 and width 16 have 272,474 parameters with 1×1 projection
    shortcuts (the count in neural lifting, Table 2) and 269,722 with ``shortcut="pad"`` (He's option A).
    """

    def __init__(
        self,
        depth: int = 20,
        width: int = 16,
        classes: int = 10,
        channels: int = 3,
        shortcut: Shortcut = "projection",
    ) -> None:
        super().__init__()
        if depth < 8 or (depth - 2) % 6:
            raise ValueError(f"ResNet depth {depth} is not 6n + 2; use 8, 14, 20, 32, 44, 56 or 110")
        self.conv = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.stage1 = stage(width, width, (depth - 2) // 6, shortcut)
        self.stage2 = stage(width, 2 * width, (depth - 2) // 6, shortcut)
        self.stage3 = stage(2 * width, 4 * width, (depth - 2) // 6, shortcut)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores, batch × classes."""
        x = self.relu(self.bn(self.conv(x)))
        x = self.stage3(self.stage2(self.stage1(x)))
        return self.head(self.pool(x).flatten(1))


def stage(inputs: int, outputs: int, blocks: int, shortcut: Shortcut) -> nn.Sequential:
    """``blocks`` basic blocks; where the channels grow, the first one halves the resolution."""
    first = BasicBlock(inputs, outputs, 1 if inputs == outputs else 2, shortcut)
    return nn.Sequential(first, *(BasicBlock(outputs, outputs, 1, shortcut) for _ in range(blocks - 1)))


def resnet(depth: int = 20, width: int = 16, classes: int = 10) -> ResNet:
    """ResNet-``depth`` for CIFAR; ``resnet(20)`` has 272,474 parameters."""
    return ResNet(depth, width, classes)
