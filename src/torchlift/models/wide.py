"""Wide residual networks."""

from torch import Tensor, nn

from torchlift.models.weights import initialize


class WideBlock(nn.Module):
    """x ↦ s(x) + conv₂(drop(relu(bn₂(conv₁ a)))), a = relu(bn₁ x); where the shape changes, s(x) = W a."""

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.bn1, self.relu1 = nn.BatchNorm2d(inputs), nn.ReLU()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn2, self.relu2 = nn.BatchNorm2d(outputs), nn.ReLU()
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        changes = inputs != outputs or stride != 1
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, before any activation."""
        active = self.relu1(self.bn1(x))
        residual = self.conv2(self.dropout(self.relu2(self.bn2(self.conv1(active)))))
        return residual + (x if self.shortcut is None else self.shortcut(active))


def wide_stage(inputs: int, outputs: int, blocks: int, stride: int, dropout: float) -> nn.Sequential:
    """``blocks`` wide blocks, the first with the stride."""
    rest = (WideBlock(outputs, outputs, 1, dropout) for _ in range(blocks - 1))
    return nn.Sequential(WideBlock(inputs, outputs, stride, dropout), *rest)


class WideResNet(nn.Module):
    """WRN-L-w: three stages of (L − 4) / 6 pre-activation blocks with 16w, 32w, 64w channels.

    Zagoruyko and Komodakis, 2016, Table 1. WRN-28-10 has 36,479,194 parameters. ``dropout``: between the
    convolutions of every block.
    """

    def __init__(
        self, depth: int = 28, widen: int = 10, classes: int = 10, channels: int = 3, dropout: float = 0.0
    ) -> None:
        super().__init__()
        if depth < 10 or (depth - 4) % 6:
            raise ValueError(f"WideResNet depth {depth} is not 6n + 4; use 10, 16, 22, 28 or 40")
        blocks, width = (depth - 4) // 6, 16 * widen
        self.conv = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.stage1 = wide_stage(16, width, blocks, 1, dropout)
        self.stage2 = wide_stage(width, 2 * width, blocks, 2, dropout)
        self.stage3 = wide_stage(2 * width, 4 * width, blocks, 2, dropout)
        self.bn, self.relu = nn.BatchNorm2d(4 * width), nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores, batch × classes."""
        x = self.stage3(self.stage2(self.stage1(self.conv(x))))
        return self.head(self.pool(self.relu(self.bn(x))).flatten(1))


SHARED = {f"stage{n}": [f"stage{n}.[!0]*.conv?.weight"] for n in (1, 2, 3)}
"""Which weights of a wide ResNet share templates in SWRN-L-w-k: those of a stage, without its first block.

Savarese, thesis, section 3.3.2: (L − 10) / 3 convolutions in each of three groups, k templates for each, as
``torchlift.lifts.Templates(k, groups=SHARED)`` makes them of ``swrn(L, w)``.
"""


def swrn(depth: int = 28, widen: int = 10, classes: int = 10, dropout: float = 0.0) -> WideResNet:
    """The network of SWRN-L-w before its weights are shared: a WRN with Kaiming's initialization."""
    model = WideResNet(depth, widen, classes, dropout=dropout)
    initialize(model, "kaiming")
    return model


def wide_resnet(depth: int = 28, widen: int = 10, classes: int = 10, dropout: float = 0.0) -> WideResNet:
    """WRN-``depth``-``widen`` for CIFAR."""
    return WideResNet(depth, widen, classes, dropout=dropout)
