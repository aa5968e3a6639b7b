"""Scattered zeros executed by a sparse kernel, where that is faster here."""

import copy
import dataclasses
import statistics
import time

import torch
from torch import Tensor, nn

from torchlift.channels.example_inputs import Example, layer_inputs
from torchlift.channels.sparse_linear import SparseLinear


@dataclasses.dataclass(frozen=True)
class Execution:
    """How a layer is best executed on this machine."""

    layer: str
    sparsity: float
    dense_ms: float
    sparse_ms: float | None
    """None where there is no sparse kernel for the layer, or too few zeros to try."""

    @property
    def sparse(self) -> bool:
        """Whether the sparse kernel wins by a margin that is not noise."""
        return self.sparse_ms is not None and 1.2 * self.sparse_ms < self.dense_ms


def sparse(model: nn.Module, example: Example) -> tuple[nn.Module, list[Execution]]:
    """A copy of the model whose linear layers use a sparse kernel where that was measured faster.

    For inference. Measured on inputs of the example's size; layers that stay dense (convolutions always do:
    torch has no sparse kernel for them) are listed with their times. Exported or saved, they are dense again.
    """
    model = copy.deepcopy(model).eval()
    layers = {
        n: m for n, m in model.named_modules() if isinstance(m, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d)
    }
    seen = layer_inputs(model, set(layers), [example])
    choices = [choose_execution(name, layer, seen[name][0]) for name, layer in layers.items() if seen[name]]
    for choice in choices:
        layer = layers[choice.layer]
        if choice.sparse and isinstance(layer, nn.Linear):
            model.set_submodule(choice.layer, SparseLinear(layer))
    return model, choices


def choose_execution(name: str, layer: nn.Module, x: Tensor) -> Execution:
    """Time a layer as it is, and by a sparse kernel."""
    weight = layer.get_parameter("weight")
    zeros = float((weight == 0).double().mean())
    if not isinstance(layer, nn.Linear) or zeros < 0.5:
        return Execution(name, zeros, median_times([layer], x)[0], None)
    dense, quick = median_times([layer, SparseLinear(layer)], x)
    return Execution(name, zeros, dense, quick)


def median_times(layers: list[nn.Module], x: Tensor, rounds: int = 15) -> list[float]:
    """Median milliseconds of each layer, taking turns; of the processor, where there is one thread: other
    processes would interrupt long calls more than short ones."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    times: list[list[float]] = [[] for _ in layers]
    with torch.inference_mode():
        for number in range(rounds + 2):
            for layer, own in zip(layers, times, strict=True):
                start = clock()
                layer(x)
                if number >= 2:
                    own.append(1e3 * (clock() - start))
    return [statistics.median(own) for own in times]
