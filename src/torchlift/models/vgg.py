"""VGG-16 for 32×32 images."""

from collections import OrderedDict

from torch import Tensor, nn

STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


class VGG16(nn.Module):
    """Thirteen 3×3 convolutions with batch norm and ReLU, pooled after each stage; one linear head.

    Simonyan and Zisserman, 2015, in the CIFAR variant of the thesis (section 4.3.2): 14,724,042
    parameters at width 1. ``width`` scales all channels. Convolutions have no bias: batch norm has one.
    """

    def __init__(self, classes: int = 10, channels: int = 3, width: float = 1.0) -> None:
        super().__init__()
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        inputs, index = channels, 0
        for stage, sizes in enumerate(STAGES, start=1):
            for outputs in (max(1, round(width * size)) for size in sizes):
                index += 1
                layers[f"conv{index}"] = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
                layers[f"bn{index}"] = nn.BatchNorm2d(outputs)
                layers[f"relu{index}"] = nn.ReLU()
                inputs = outputs
            layers[f"pool{stage}"] = nn.MaxPool2d(2)
        layers["flatten"] = nn.Flatten()
        self.trunk = nn.Sequential(layers)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of 32×32 images, batch × classes."""
        return self.head(self.trunk(x))
