"""The network of the shortest-paths task."""

from torch import Tensor, nn


class GridBlock(nn.Module):
    """x ↦ x + relu(bn(conv x)), 3×3, channels kept."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, of the input's shape."""
        return x + self.bn(self.conv(x)).relu()


class GridNet(nn.Module):
    """1×1 convolution 2 → 32, twenty 3×3 convolutions with batch norm, ReLU and a skip, 1×1 to one score.

    Savarese, thesis, section 3.4.3. All twenty weights have one shape: soft sharing can make one of them.
    """

    def __init__(self, layers: int = 20, width: int = 32, channels: int = 2) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, width, 1)
        self.blocks = nn.Sequential(*(GridBlock(width) for _ in range(layers)))
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """One score per cell, batch × 1 × height × width."""
        return self.head(self.blocks(self.stem(x)))
