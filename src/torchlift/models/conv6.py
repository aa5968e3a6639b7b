"""Conv-6, the small network of the supermask and ticket experiments."""

from collections import OrderedDict

from torch import Tensor, nn


class Conv6(nn.Module):
    """Three pairs of 3×3 convolutions (64, 128, 256), each pair pooled, then 4096 → 256 → 256 → 10.

    Savarese, thesis, section 4.3.2 (after Frankle and Carbin, 2019); ReLU, no normalization;
    2,262,602 parameters at width 1. ``width`` scales all layers but the head.
    """

    def __init__(self, classes: int = 10, channels: int = 3, width: float = 1.0) -> None:
        super().__init__()
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        inputs, hidden = channels, max(1, round(256 * width))
        for pair, outputs in enumerate(max(1, round(size * width)) for size in (64, 128, 256)):
            for index in (2 * pair + 1, 2 * pair + 2):
                layers[f"conv{index}"] = nn.Conv2d(inputs, outputs, 3, padding=1)
                layers[f"relu{index}"] = nn.ReLU()
                inputs = outputs
            layers[f"pool{pair + 1}"] = nn.MaxPool2d(2)
        layers["flatten"] = nn.Flatten()
        layers |= OrderedDict(
            fc1=nn.Linear(16 * inputs, hidden),
            relu7=nn.ReLU(),
            fc2=nn.Linear(hidden, hidden),
            relu8=nn.ReLU(),
        )
        self.trunk = nn.Sequential(layers)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of 32×32 images, batch × classes."""
        return self.head(self.trunk(x))
