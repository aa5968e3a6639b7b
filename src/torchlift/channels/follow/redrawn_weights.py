"""Weights drawn anew: what is constant then is so because of zeros."""

import torch
from torch import nn

from torchlift.channels.copies import copied


def redrawn(model: nn.Module, generator: torch.Generator) -> nn.Module:
    """A copy with every weight that is not zero drawn anew, of either sign and of its tensor's usual size.

    Shifts are made small, so that no activation is off at all inputs because of them.
    """
    model = copied(model)
    with torch.no_grad():
        shifts = [b for name, b in model.named_buffers() if name.endswith("running_mean")]
        shifts += [p for name, p in model.named_parameters() if name.endswith("bias")]
        for tensor in [*model.parameters(), *shifts]:
            if tensor.is_floating_point():
                usual = float(tensor.square().sum() / tensor.count_nonzero().clamp(min=1)) ** 0.5
                small = any(tensor is shift for shift in shifts)
                factor = 0.5 + torch.rand(tensor.shape, generator=generator, dtype=torch.float64)
                sign = torch.randint(2, tensor.shape, generator=generator) * 2 - 1
                drawn = (min(usual, 0.05) if small else usual) * factor * sign
                tensor.copy_(torch.where(tensor != 0, drawn.to(tensor), tensor))
    return model
