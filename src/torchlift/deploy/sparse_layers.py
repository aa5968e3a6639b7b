"""Scattered zeros executed by a sparse kernel, where that is faster here."""

import copy
import dataclasses
import functools
import statistics
import time
import warnings

import torch
from torch import Tensor, nn

from torchlift.channels.example_inputs import Example, layer_inputs


class SparseLinear(nn.Module):
    """y = (W xᵀ)ᵀ + b with W stored by compressed rows."""

    unpackable = "its kernel trusts its indices; save the dense model and call deploy.sparse after loading"

    starts: Tensor
    columns: Tensor
    values: Tensor

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        hush()
        rows = layer.weight.detach().to_sparse_csr()
        # three plain tensors: torch can neither copy nor pickle the compressed one
        self.register_buffer("starts", rows.crow_indices())
        self.register_buffer("columns", rows.col_indices())
        self.register_buffer("values", rows.values())
        self.in_features, self.out_features = layer.in_features, layer.out_features
        bias = dict(layer.named_parameters()).get("bias")
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output; for inference."""
        y = (self.rows() @ x.reshape(-1, self.in_features).t()).t().reshape(*x.shape[:-1], self.out_features)
        return y if self.bias is None else y + self.bias

    def rows(self) -> Tensor:
        """The weight by compressed rows."""
        hush()
        size = (self.out_features, self.in_features)
        return torch.sparse_csr_tensor(self.starts, self.columns, self.values, size, check_invariants=False)

    def dense(self) -> nn.Linear:
        """The layer it was made of, zeros and all."""
        layer = nn.Linear(
            self.in_features,
            self.out_features,
            bias=self.bias is not None,
            device=self.values.device,
            dtype=self.values.dtype,
        )
        with torch.no_grad():
            layer.weight.copy_(self.rows().to_dense())
            if self.bias is not None:
                layer.bias.copy_(self.bias)
        return layer.train(self.training)


@functools.cache
def hush() -> None:
    """Let torch say once, unheard, that the layout is a beta."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.eye(1).to_sparse_csr()


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
    torch has no sparse kernel for them) are listed with their times. Exported, they are dense again.
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


def with_dense_layers(model: nn.Module) -> nn.Module:
    """The model, or a copy whose sparse layers are dense with their zeros: standard files have no others."""
    if not any(isinstance(module, SparseLinear) for module in model.modules()):
        return model
    if isinstance(model, SparseLinear):
        return model.dense()
    model = copy.deepcopy(model)
    for name, module in list(model.named_modules()):
        if isinstance(module, SparseLinear):
            model.set_submodule(name, module.dense())
    return model


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
