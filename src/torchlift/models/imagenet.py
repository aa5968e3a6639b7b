"""Residual networks for images of 224 × 224."""

from collections.abc import Sequence

from torch import Tensor, nn


def projection(inputs: int, outputs: int, stride: int) -> nn.Module:
    """What is added to a block's output: its input, brought to the output's shape."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class PlainBlock(nn.Module):
    """x ↦ relu(s(x) + bn₂(conv₂(relu(bn₁(conv₁ x))))), 3 × 3 convolutions."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, widen: int = 1) -> None:
        super().__init__()
        del widen
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1, self.relu1 = nn.BatchNorm2d(width), nn.ReLU()
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2, self.relu2 = nn.BatchNorm2d(width), nn.ReLU()
        self.shortcut = projection(inputs, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, nowhere negative."""
        residual = self.bn2(self.conv2(self.relu1(self.bn1(self.conv1(x)))))
        return self.relu2(self.shortcut(x) + residual)


class Bottleneck(nn.Module):
    """1 × 1 to ``widen`` times the width, 3 × 3 with the stride, 1 × 1 to four times the width."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, widen: int = 1) -> None:
        super().__init__()
        inner, outputs = widen * width, self.expansion * width
        self.conv1 = nn.Conv2d(inputs, inner, 1, bias=False)
        self.bn1, self.relu1 = nn.BatchNorm2d(inner), nn.ReLU()
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, 1, bias=False)
        self.bn2, self.relu2 = nn.BatchNorm2d(inner), nn.ReLU()
        self.conv3 = nn.Conv2d(inner, outputs, 1, bias=False)
        self.bn3, self.relu3 = nn.BatchNorm2d(outputs), nn.ReLU()
        self.shortcut = projection(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, nowhere negative."""
        residual = self.relu1(self.bn1(self.conv1(x)))
        residual = self.bn3(self.conv3(self.relu2(self.bn2(self.conv2(residual)))))
        return self.relu3(self.shortcut(x) + residual)


class ImageNetResNet(nn.Module):
    """He et al., 2016, Table 1: a 7 × 7 convolution, pooling, four stages of 64, 128, 256, 512, a head."""

    def __init__(
        self,
        block: type[PlainBlock] | type[Bottleneck],
        blocks: Sequence[int],
        widen: int = 1,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn, self.relu = nn.BatchNorm2d(64), nn.ReLU()
        self.shrink = nn.MaxPool2d(3, 2, 1)
        inputs = 64
        for number, count in enumerate(blocks, start=1):
            width, stride = 32 * 2**number, 1 if number == 1 else 2
            stage = [block(inputs, width, stride, widen)]
            inputs = width * block.expansion
            stage += [block(inputs, width, 1, widen) for _ in range(count - 1)]
            self.add_module(f"stage{number}", nn.Sequential(*stage))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores, batch × classes."""
        x = self.shrink(self.relu(self.bn(self.conv(x))))
        for number in (1, 2, 3, 4):
            x = self.get_submodule(f"stage{number}")(x)
        return self.head(self.pool(x).flatten(1))


SHARED_50 = {f"stage{n}.conv{k}": [f"stage{n}.[!0]*.conv{k}.weight"] for n in (1, 2, 3, 4) for k in (1, 2, 3)}
"""The twelve groups of SWRN-50-2: of every stage but its first block, one for each kind of convolution.

Savarese, thesis, section 3.3.2: ``torchlift.lifts.Templates(k, groups=SHARED_50)`` on ``wide_resnet50(2)``.
"""


def resnet18(classes: int = 1000) -> ImageNetResNet:
    """ResNet-18: 11,689,512 parameters."""
    return ImageNetResNet(PlainBlock, (2, 2, 2, 2), classes=classes)


def resnet50(classes: int = 1000) -> ImageNetResNet:
    """ResNet-50: 25,557,032 parameters."""
    return ImageNetResNet(Bottleneck, (3, 4, 6, 3), classes=classes)


def wide_resnet50(widen: int = 2, classes: int = 1000) -> ImageNetResNet:
    """WRN-50-``widen``: 68,883,240 parameters with 2."""
    return ImageNetResNet(Bottleneck, (3, 4, 6, 3), widen, classes)
