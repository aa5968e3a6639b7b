"""How weights lie in memory: many narrow convolutions run faster on a CPU with their channels last."""

import time

import torch
from torch import Tensor, nn

from torchlift.deploy.probing import Example, call, copied, tensors

ROUNDS = 2


def laid_out(small: nn.Module, example: Example) -> nn.Module:
    """The model itself, its channels last where it runs faster so on the example, and runs at all."""
    if not any(True for _ in convolutions(small)):
        return small
    twin = copied(small).eval()
    least = {torch.contiguous_format: float("inf"), torch.channels_last: float("inf")}
    first: list[Tensor] = []
    for _ in range(ROUNDS):
        for order in least:
            try:
                spent, out = timed(lay(twin, order), example)
            except RuntimeError:  # a view() that asks for channels first
                return small
            first = first or out
            if not all(map(near, first, out)):
                return small
            least[order] = min(least[order], spent)
    return lay(small, min(least, key=least.__getitem__))


def lay(model: nn.Module, order: torch.memory_format) -> nn.Module:
    """The model itself, its 2-d convolutions on a CPU reading and writing maps in this order.

    Values are the same; sums may round otherwise.
    """
    for layer in convolutions(model):
        layer.weight.data = layer.weight.data.contiguous(memory_format=order)
    return model


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
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d) and layer.weight.device.type == "cpu"
    ]


def timed(model: nn.Module, example: Example) -> tuple[float, list[Tensor]]:
    """Seconds of the faster of two calls, and what they gave."""
    spent: list[float] = []
    out: list[Tensor] = []
    with torch.no_grad():
        for _ in range(2):
            start = time.perf_counter()
            out = list(tensors(call(model, example)))
            spent.append(time.perf_counter() - start)
    return min(spent), out


def near(one: Tensor, other: Tensor) -> bool:
    """Whether two outputs are the same but for rounding."""
    return one.shape == other.shape and torch.allclose(one.float(), other.float(), 1e-3, 1e-3, equal_nan=True)
