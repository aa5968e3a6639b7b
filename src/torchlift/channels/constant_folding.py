"""Constants that dead channels emit, taken into the bias of the layer that reads them."""

import torch
from torch import Tensor, nn

from torchlift.channels.couplings import Member
from torchlift.channels.follow import Trace
from torchlift.channels.resizing import CONV, is_conv1d

Folds = dict[str, Tensor]
"""What is added to the bias of a layer, by the layer's name."""


def target(model: nn.Module, found: Trace, reader: Member) -> str | None:
    """The layer whose bias takes what one of its columns would have added; None if there is none."""
    start = next(p.start for p in found.labels.places if (p.name, p.dim) == (reader.name, reader.dim))
    names = [found.watch.readers.get(start), reader.name.rpartition(".")[0]]
    weight = model.state_dict(keep_vars=True).get(reader.name)
    for name in names:
        layer = None if name is None else model.get_submodule(name)
        if isinstance(layer, (nn.Linear, *CONV)) or (layer is not None and is_conv1d(layer)):
            columns = 0 if is_conv1d(layer) else 1
            if layer.weight is weight and reader.dim == columns:
                return name
    return None


def fold(
    model: nn.Module, found: Trace, reader: Member, labels: Tensor, dead: Tensor
) -> tuple[str, Tensor] | None:
    """(layer, c·Σ W[:, i]) over the dead channels i that carry a constant c; None where all are zero."""
    gone = dead[reader.channel] & ~found.watch.zero[labels]
    constant = torch.where(gone, found.still.value[labels], 0.0)
    name = target(model, found, reader) if bool(constant.any()) else None
    if name is None:
        return None
    layer = model.get_submodule(name)
    weight = layer.get_parameter("weight").detach().double()
    weight = weight.t() if is_conv1d(layer) else weight
    sums = weight.reshape(*weight.shape[:2], -1).sum(2)
    return name, sums[:, reader.index] @ constant.to(weight.device)


def fold_in(model: nn.Module, folds: Folds) -> None:
    """Add to biases, making them where there are none."""
    for name, extra in folds.items():
        layer = model.get_submodule(name)
        weight = layer.get_parameter("weight")
        bias = layer.get_parameter("bias").detach().double() if isinstance(layer.bias, Tensor) else 0.0
        layer.register_parameter("bias", nn.Parameter((bias + extra).to(weight), weight.requires_grad))
