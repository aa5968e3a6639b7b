"""A linear layer by a sparse kernel, and the dense one that stands for it in files."""

import copy
import functools
import warnings

import torch
from torch import Tensor, nn


class SparseLinear(nn.Module):
    """y = (W xᵀ)ᵀ + b with W stored by compressed rows."""

    unpackable = "its kernel trusts its indices; load the dense model and call deploy.sparse on it"

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


def with_dense_layers(model: nn.Module) -> nn.Module:
    """The model, or a copy whose sparse layers are dense with their zeros: files hold no others."""
    if not any(isinstance(module, SparseLinear) for module in model.modules()):
        return model
    if isinstance(model, SparseLinear):
        return model.dense()
    model = copy.deepcopy(model)
    for name, module in list(model.named_modules()):
        if isinstance(module, SparseLinear):
            model.set_submodule(name, module.dense())
    return model
