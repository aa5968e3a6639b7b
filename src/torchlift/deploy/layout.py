"""How weights lie in memory: narrow convolutions run faster on a CPU with their channels last."""

import torch
from torch import nn


def lay_channels_last(model: nn.Module) -> nn.Module:
    """The model itself, its 2-d convolutions on a CPU reading and writing maps with channels last.

    Values are the same; sums may round otherwise.
    """
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d) and layer.weight.device.type == "cpu":
            layer.weight.data = layer.weight.data.contiguous(memory_format=torch.channels_last)
    return model
