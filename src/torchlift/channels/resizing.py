"""Telling layers, after a cut, how wide they are now."""

from collections.abc import Mapping
from typing import Any, cast

from torch import nn

from torchlift.channels.layers import CountedLayerNorm, FewerHeads

CONV = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
NORM = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)  # pyright: ignore[reportPrivateUsage]


def is_conv1d(layer: nn.Module) -> bool:
    """Hugging Face's Conv1D: a linear layer with its weight the other way round."""
    return type(layer).__name__ == "Conv1D" and hasattr(layer, "nf")


def resize(layer: nn.Module, *, groups: int | None = None) -> None:
    """Make a layer's sizes those of its weights; a convolution has so many ``groups`` now."""
    if isinstance(layer, (*CONV, *TRANSPOSED)):
        resize_convolution(layer, groups)
    elif isinstance(layer, nn.Linear):
        layer.out_features, layer.in_features = layer.weight.shape
    elif is_conv1d(layer):
        whole = cast(Any, layer)
        whole.nx, whole.nf = whole.weight.shape
    elif isinstance(layer, nn.Embedding):
        layer.embedding_dim = layer.weight.shape[1]
    elif isinstance(layer, NORM):
        tensor = layer.weight if layer.affine else layer.running_mean
        if tensor is not None:
            layer.num_features = len(tensor)
    elif isinstance(layer, nn.GroupNorm):
        if layer.affine:
            each = layer.num_channels // layer.num_groups
            layer.num_channels = len(layer.weight)
            layer.num_groups = 1 if layer.num_groups == 1 else layer.num_channels // each
    elif isinstance(layer, nn.LayerNorm | nn.RMSNorm):
        if layer.weight is not None and len(layer.normalized_shape) == 1:  # pyright: ignore[reportUnnecessaryComparison]
            layer.normalized_shape = (len(layer.weight),)
    elif isinstance(layer, nn.PReLU):
        layer.num_parameters = layer.weight.numel()
    elif isinstance(layer, nn.RNNBase):
        resize_recurrent(layer)


def resize_convolution(layer: Any, groups: int | None) -> None:
    """Channels and groups; where nothing else is known, whole groups went, or as many columns of each."""
    rows, columns = layer.weight.shape[:2]
    transposed = isinstance(layer, TRANSPOSED)
    if groups is not None:
        layer.groups = groups
    elif layer.groups > 1:
        outer, inner = layer.out_channels // layer.groups, layer.in_channels // layer.groups
        outer, inner = (inner, outer) if transposed else (outer, inner)
        layer.groups = rows // outer if columns == inner else layer.groups
    if transposed:
        layer.in_channels, layer.out_channels = rows, columns * layer.groups
    else:
        layer.in_channels, layer.out_channels = columns * layer.groups, rows


def resize_recurrent(layer: nn.RNNBase) -> None:
    """Units, features, and torch's private list of weights."""
    layer.input_size = layer.get_parameter("weight_ih_l0").shape[1]
    layer.hidden_size = layer.get_parameter("weight_hh_l0").shape[1]
    names: list[str] = cast(Any, layer)._flat_weights_names
    cast(Any, layer)._flat_weights = [getattr(layer, name) for name in names]
    layer.flatten_parameters()


def refit_attention(model: nn.Module) -> nn.Module:
    """The model with torch's attention replaced where its heads no longer fill its width."""
    for name, layer in list(model.named_modules()):
        if isinstance(layer, nn.MultiheadAttention):
            width, inner = layer.out_proj.weight.shape
            if (width, inner) == (layer.embed_dim, layer.embed_dim):
                continue
            if width == inner and width % layer.head_dim == 0 and layer._qkv_same_embed_dim:  # pyright: ignore[reportPrivateUsage]
                layer.embed_dim = layer.kdim = layer.vdim = width
                layer.num_heads = width // layer.head_dim
            elif layer.bias_k is None and layer.bias_v is None and not layer.add_zero_attn:
                model.set_submodule(name, FewerHeads(layer, layer.head_dim))
    for layer in model.modules():  # torch's fused kernel would take the norm for one of its own
        if isinstance(layer, nn.TransformerEncoderLayer) and isinstance(layer.norm1, CountedLayerNorm):
            layer.activation_relu_or_gelu = 0
    return model


def count_again(layer: nn.Module, sizes: Mapping[int, int]) -> None:
    """Numbers that a module's own code puts into a view or a split: heads, widths, the sizes of parts."""
    for key, value in list(vars(layer).items()):
        if type(value) is int and value in sizes and countable(key):
            setattr(layer, key, sizes[value])


def countables(layer: nn.Module) -> set[int]:
    """The numbers that a module may put into a view or a split; none of layers whose sizes are known."""
    resized = type(layer) in (*CONV, *TRANSPOSED, nn.Linear, nn.Embedding) or is_conv1d(layer)
    if resized or isinstance(layer, nn.MultiheadAttention | FewerHeads | nn.RNNBase | nn.GroupNorm):
        return set()
    return {value for key, value in vars(layer).items() if type(value) is int and countable(key)}


def countable(key: str) -> bool:
    """Whether an attribute's name says a number of heads, groups or channels, not of one head's features."""
    inner = ("head_dim", "head_size", "dim_head", "per_head", "d_head", "_layers")
    outer = (
        "head",
        "split",
        "size",
        "dim",
        "width",
        "channels",
        "features",
        "hidden",
        "inner",
        "embd",
        "group",
        "d_model",
    )
    return key == "all_head_size" or (
        not any(word in key for word in inner) and any(word in key for word in outer)
    )
