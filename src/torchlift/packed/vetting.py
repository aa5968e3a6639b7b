"""Layers of torch whose kernels trust the shapes of their weights: they must be those that the constructor
makes."""

from collections.abc import Callable
from typing import Any

from torch import nn

from torchlift.packed.budget import PackedError

MOST = 2**24


def recurrent(layer: Any) -> nn.Module:
    """The same RNN, LSTM or GRU without memory; their mode says which."""
    kinds = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN_TANH": nn.RNN, "RNN_RELU": nn.RNN}
    kind = kinds[layer.mode]
    if not isinstance(layer, kind):
        raise PackedError(f"a layer {type(layer).__name__} says that it is {layer.mode}.")
    options: dict[str, Any] = {"proj_size": layer.proj_size} if kind is nn.LSTM else {}
    sizes = whole(layer.input_size), whole(layer.hidden_size), whole(layer.num_layers, 1024)
    return kind(*sizes, bias=layer.bias, bidirectional=layer.bidirectional, device="meta", **options)


def attention(layer: Any) -> nn.Module:
    """The same multi-head attention without memory."""
    return nn.MultiheadAttention(
        whole(layer.embed_dim), whole(layer.num_heads), bias=layer.in_proj_bias is not None,
        add_bias_kv=layer.bias_k is not None, kdim=whole(layer.kdim), vdim=whole(layer.vdim), device="meta",
    )  # fmt: skip


def encoder(layer: Any) -> nn.Module:
    """The same encoder layer without memory."""
    width, hidden = whole(layer.linear1.in_features), whole(layer.linear1.out_features)
    heads, bias = whole(layer.self_attn.num_heads), layer.linear1.bias is not None
    return nn.TransformerEncoderLayer(width, heads, hidden, bias=bias, device="meta")


TWINS: dict[type, Callable[[Any], nn.Module]] = {
    nn.RNNBase: recurrent,
    nn.MultiheadAttention: attention,
    nn.TransformerEncoderLayer: encoder,
}


def whole(value: Any, most: int = MOST) -> int:
    """A size that makes sense."""
    if type(value) is not int or not 0 < value <= most:
        raise PackedError(f"{value!r} is no size of a layer.")
    return value


def vet(module: nn.Module) -> None:
    """Refuse a layer whose weights are not of the shapes, or not of one type, that its sizes ask for."""
    for kind, twin in TWINS.items():
        if isinstance(module, kind):
            expected = {name: p.shape for name, p in twin(module).named_parameters()}
            if {name: p.shape for name, p in module.named_parameters()} != expected:
                raise PackedError(
                    f"a layer {type(module).__name__} has weights of other shapes than its sizes ask for."
                )
            if len({p.dtype for p in module.parameters()}) > 1:
                raise PackedError(f"a layer {type(module).__name__} has weights of several types.")
