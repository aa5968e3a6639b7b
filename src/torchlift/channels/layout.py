"""How weights lie in memory: many narrow convolutions run faster on a CPU with their channels last."""

import time
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from torchlift.channels.copies import copied
from torchlift.channels.example_inputs import Example, tensors
from torchlift.loss import call

ROUNDS = 2


def laid_out(small: nn.Module, example: Example) -> nn.Module:
    """The model itself, its channels last where it runs faster so on the example, and runs at all."""
    return lay(small, faster(copied(small).eval(), example)[0]) if convolutions(small) else small


def faster(twin: nn.Module, example: Example) -> tuple[torch.memory_format | None, list[Tensor]]:
    """The order in which a model (for evaluation) runs faster, taken on by it, and what it gives then.

    None: it does not support both. Nothing is given where it does not run at all.
    """
    layers = convolutions(twin)
    orders = [torch.contiguous_format, torch.channels_last] * ROUNDS if layers else [torch.contiguous_format]
    least: dict[torch.memory_format, float] = {}
    outputs_of: dict[torch.memory_format, list[Tensor]] = {}
    for order in orders:
        lay_out(layers, order)
        try:
            spent, outputs_of[order] = timed(twin, example)
        except Exception:  # a view() that asks for channels first, or whatever a cut model's own code raises
            break
        least[order] = min(least.get(order, spent), spent)
    both = [outputs_of[order] for order in dict.fromkeys(orders) if order in outputs_of]
    fine = len(both) == len(set(orders)) and all(near(a, b) for a, b in zip(both[0], both[-1], strict=True))
    best = min(least, key=least.__getitem__) if fine else None
    lay_out(layers, best or torch.contiguous_format)
    return best, outputs_of.get(best or torch.contiguous_format, [])


def lay(model: nn.Module, order: torch.memory_format | None) -> nn.Module:
    """The model itself, its 2-d convolutions on a CPU reading and writing maps in this order.

    None: in the order they have. Values are the same; sums may round otherwise.
    """
    if order is not None:
        lay_out(convolutions(model), order)
    return model


def channels_first(model: nn.Module) -> nn.Module:
    """The model, or where weights have their channels last a copy with these in the usual order.

    Graphs in which layouts are spelled out hold a detour for every other order.
    """
    last = [layer.weight for layer in convolutions(model) if is_last(layer.weight)]
    if not last:
        return model
    first = {id(w): nn.Parameter(w.detach().contiguous(), w.requires_grad) for w in last}
    return copied(model, {id(p): first.get(id(p), p) for p in model.parameters()})


def lay_out(layers: Sequence[nn.Conv2d | nn.ConvTranspose2d], order: torch.memory_format) -> None:
    """Lay the weights of layers in this order."""
    for layer in layers:
        layer.weight.data = layer.weight.data.contiguous(memory_format=order)


def is_last(weight: Tensor) -> bool:
    """Whether a tensor has its channels last, and that is not the usual order too."""
    return weight.ndim == 4 and not weight.is_contiguous() and weight.is_contiguous(
        memory_format=torch.channels_last
    )  # fmt: skip


def convolutions(model: nn.Module) -> list[nn.Conv2d | nn.ConvTranspose2d]:
    """The layers whose order matters."""
    return [
        layer
        for layer in model.modules()
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d)
        and vars(layer)["_parameters"].get("weight") is not None  # one computed from others is not there
        and layer.weight.device.type == "cpu"
    ]


def timed(model: nn.Module, example: Example) -> tuple[float, list[Tensor]]:
    """Seconds of a call, and what it gave."""
    with torch.no_grad():
        start = time.perf_counter()
        out = list(tensors(call(model, example)))
        return time.perf_counter() - start, out


def near(one: Tensor, other: Tensor) -> bool:
    """Whether two outputs are the same but for rounding."""
    return one.shape == other.shape and torch.allclose(one.float(), other.float(), 1e-3, 1e-3, equal_nan=True)
