"""The closed list of modules that a file may hold, each with the arguments that it is made from.

A module is described by its kind and by those arguments of its constructor that are not the default. Reading
checks every argument against the list (its type, its range) and makes the module without memory through
torch's own constructor, so that all its attributes and shapes agree with each other whatever the file says.
Writing makes the module in the same way and compares: what is not the same in every attribute (a subclass,
hooks, parametrizations, attributes of one's own) is not described, with the reason.
"""

import dataclasses
import functools
import importlib
import inspect
import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from torchlift.packed.budget import PackedError
from torchlift.packed.elements import DTYPES

LARGE = 2**24
WIDE = 2**16 - 1
Check = Callable[[Any], bool]
Arguments = dict[str, Any]


def whole_number(least: int, most: int) -> Check:
    """Whole numbers of a range."""
    return lambda value: type(value) is int and least <= value <= most


def number(least: float, most: float) -> Check:
    """Finite numbers of a range."""
    return lambda value: type(value) in (int, float) and math.isfinite(value) and least <= value <= most


def word(*words: str) -> Check:
    """One of a few words."""
    return lambda value: type(value) is str and value in words


def several(check: Check, *counts: int) -> Check:
    """A list of so many values."""
    return lambda value: type(value) is list and len(value) in counts and all(map(check, value))


def either(*checks: Check) -> Check:
    """Anything that one of the checks takes."""
    return lambda value: any(check(value) for check in checks)


def flag(value: Any) -> bool:
    """True or False."""
    return type(value) is bool


def no(value: Any) -> bool:
    """False alone."""
    return value is False


def none(value: Any) -> bool:
    """None."""
    return value is None


size, small, natural = whole_number(1, LARGE), whole_number(1, WIDE), whole_number(0, WIDE)
position, margin = whole_number(-64, 64), whole_number(-WIDE, WIDE)
real, share, tiny = number(-1e6, 1e6), number(0, 1), number(0, 1)


def per_dimension(dimensions: int, check: Check) -> Check:
    """One value, or one for each dimension."""
    return either(check, several(check, dimensions))


@dataclasses.dataclass(frozen=True)
class LayerKind:
    """A kind of module: its class, and what its arguments may be."""

    kind: type[nn.Module]
    checks: Mapping[str, Check]
    read: Callable[[Any], Arguments] | None = None
    """The arguments of a module, where they are not its attributes of the same names."""
    make: Callable[..., nn.Module] | None = None
    """What makes the module, where that is not its class."""
    container: bool = False
    children: tuple[str, ...] = ()
    """The children that a container of ours must have; others have any."""


def convolution_schemas() -> dict[str, LayerKind]:
    """Convolutions of one, two and three dimensions and their transposes."""
    layers: dict[str, LayerKind] = {}
    for d in (1, 2, 3):
        common = {
            "in_channels": size, "out_channels": size, "kernel_size": per_dimension(d, small),
            "stride": per_dimension(d, small), "dilation": per_dimension(d, small),
            "groups": size, "bias": flag,
        }  # fmt: skip
        modes = word("zeros", "reflect", "replicate", "circular")
        padding = either(per_dimension(d, natural), word("same", "valid"))
        layers[f"Conv{d}d"] = LayerKind(
            getattr(nn, f"Conv{d}d"), {**common, "padding": padding, "padding_mode": modes}
        )
        padding = {"padding": per_dimension(d, natural), "output_padding": per_dimension(d, natural)}
        layers[f"ConvTranspose{d}d"] = LayerKind(getattr(nn, f"ConvTranspose{d}d"), {**common, **padding})
    return layers


def by_dimension() -> dict[str, LayerKind]:
    """Norms, pooling, padding and dropout of one, two and three dimensions."""
    checks_of: dict[str, dict[str, Check]] = {}
    norm = {"num_features": size, "eps": tiny, "momentum": either(share, none), "affine": flag}
    for d in (1, 2, 3):
        checks_of[f"BatchNorm{d}d"] = {**norm, "track_running_stats": flag}
        checks_of[f"InstanceNorm{d}d"] = {**norm, "track_running_stats": flag}
        window = {
            "kernel_size": per_dimension(d, small),
            "stride": per_dimension(d, small),
            "padding": per_dimension(d, natural),
        }
        checks_of[f"MaxPool{d}d"] = {
            **window, "dilation": per_dimension(d, small), "return_indices": no, "ceil_mode": flag,
        }  # fmt: skip
        checks_of[f"AvgPool{d}d"] = {**window, "ceil_mode": flag, "count_include_pad": flag}
        if d > 1:
            checks_of[f"AvgPool{d}d"]["divisor_override"] = either(none, small)
        out = either(small, none, several(either(small, none), d))
        checks_of[f"AdaptiveAvgPool{d}d"] = {"output_size": out}
        checks_of[f"AdaptiveMaxPool{d}d"] = {"output_size": out, "return_indices": no}
        checks_of[f"ConstantPad{d}d"] = {"padding": several(margin, 2 * d), "value": real}
        for name in ("ZeroPad", "ReflectionPad", "ReplicationPad"):
            checks_of[f"{name}{d}d"] = {"padding": several(margin, 2 * d)}
        checks_of[f"Dropout{d}d"] = {"p": share, "inplace": flag}
    return {name: LayerKind(getattr(nn, name), checks) for name, checks in checks_of.items()}


def plain_schemas() -> dict[str, LayerKind]:
    """Layers whose arguments are attributes of the same names."""
    shape = either(size, several(size, *range(1, 9)))
    kinds: dict[str, dict[str, Check]] = {
        "Linear": {"in_features": size, "out_features": size, "bias": flag},
        "Identity": {},
        "LayerNorm": {"normalized_shape": shape, "eps": tiny, "elementwise_affine": flag, "bias": flag},
        "RMSNorm": {"normalized_shape": shape, "eps": either(tiny, none), "elementwise_affine": flag},
        "GroupNorm": {"num_groups": size, "num_channels": size, "eps": tiny, "affine": flag},
        "Embedding": {
            "num_embeddings": size, "embedding_dim": size,
            "padding_idx": either(none, whole_number(0, LARGE)),
        },
        "PReLU": {"num_parameters": size},
        "Flatten": {"start_dim": position, "end_dim": position},
        "Unflatten": {
            "dim": position,
            "unflattened_size": several(either(small, whole_number(-1, -1)), *range(1, 9)),
        },
        "Upsample": {
            "size": either(none, small, several(small, 1, 2, 3)),
            "scale_factor": either(none, number(1e-3, WIDE), several(number(1e-3, WIDE), 1, 2, 3)),
            "mode": word("nearest", "linear", "bilinear", "bicubic", "trilinear", "nearest-exact"),
            "align_corners": either(none, flag), "recompute_scale_factor": either(none, flag),
        },
        "PixelShuffle": {"upscale_factor": small},
        "PixelUnshuffle": {"downscale_factor": small},
        "ChannelShuffle": {"groups": small},
        "Dropout": {"p": share, "inplace": flag},
        "AlphaDropout": {"p": share, "inplace": flag},
        "GELU": {"approximate": word("none", "tanh")},
        "LeakyReLU": {"negative_slope": real, "inplace": flag},
        "Threshold": {"threshold": real, "value": real, "inplace": flag},
        "Hardtanh": {"min_val": real, "max_val": real, "inplace": flag},
        "Softplus": {"beta": real, "threshold": real},
        "Softshrink": {"lambd": number(0, 1e6)}, "Hardshrink": {"lambd": real},
        "ELU": {"alpha": real, "inplace": flag}, "CELU": {"alpha": number(1e-6, 1e6), "inplace": flag},
        "Softmax": {"dim": either(none, position)}, "LogSoftmax": {"dim": either(none, position)},
        "Softmin": {"dim": either(none, position)}, "GLU": {"dim": position}, "Softmax2d": {},
        "Sigmoid": {}, "Tanh": {}, "LogSigmoid": {}, "Softsign": {}, "Tanhshrink": {},
        **{name: {"inplace": flag} for name in (
            "ReLU", "ReLU6", "SELU", "SiLU", "Mish", "Hardsigmoid", "Hardswish")},
    }  # fmt: skip
    return {name: LayerKind(getattr(nn, name), checks) for name, checks in kinds.items()}


def recurrent() -> dict[str, LayerKind]:
    """Recurrent layers and cells."""
    sizes = {"input_size": size, "hidden_size": size, "bias": flag}
    layers = {
        **sizes, "num_layers": whole_number(1, 64), "batch_first": flag, "dropout": share,
        "bidirectional": flag,
    }  # fmt: skip
    words = {"nonlinearity": word("tanh", "relu")}
    return {
        "LSTM": LayerKind(nn.LSTM, {**layers, "proj_size": whole_number(0, LARGE)}),
        "GRU": LayerKind(nn.GRU, layers),
        "RNN": LayerKind(nn.RNN, {**layers, **words}),
        "LSTMCell": LayerKind(nn.LSTMCell, sizes),
        "GRUCell": LayerKind(nn.GRUCell, sizes),
        "RNNCell": LayerKind(nn.RNNCell, {**sizes, **words}),
    }


def attention_arguments(layer: Any) -> Arguments:
    """What ``nn.MultiheadAttention`` was made from."""
    return {
        "embed_dim": layer.embed_dim, "num_heads": layer.num_heads, "dropout": layer.dropout,
        "bias": layer.in_proj_bias is not None, "add_bias_kv": layer.bias_k is not None,
        "add_zero_attn": layer.add_zero_attn, "kdim": layer.kdim, "vdim": layer.vdim,
        "batch_first": layer.batch_first,
    }  # fmt: skip


ACTIVATIONS = {"relu": functional.relu, "gelu": functional.gelu}


def encoder_layer_arguments(layer: Any) -> Arguments:
    """What ``nn.TransformerEncoderLayer`` was made from."""
    activation = next((name for name, function in ACTIVATIONS.items() if layer.activation is function), "")
    return {
        "d_model": layer.linear1.in_features, "nhead": layer.self_attn.num_heads,
        "dim_feedforward": layer.linear1.out_features, "dropout": layer.dropout.p,
        "activation": activation, "layer_norm_eps": layer.norm1.eps,
        "batch_first": layer.self_attn.batch_first, "norm_first": layer.norm_first,
        "bias": layer.linear1.bias is not None,
    }  # fmt: skip


def encoder_arguments(encoder: Any) -> Arguments:
    """What ``nn.TransformerEncoder`` was made from: its first layer's, how many, and the last norm's."""
    return {
        **encoder_layer_arguments(encoder.layers[0]), "num_layers": encoder.num_layers,
        "norm": encoder.norm is not None, "enable_nested_tensor": encoder.enable_nested_tensor,
    }  # fmt: skip


def make_encoder(
    *, num_layers: int, norm: bool = False, enable_nested_tensor: bool = True, **layer: Any
) -> nn.Module:
    """An encoder of equal layers, with a last norm of their width or none."""
    first = nn.TransformerEncoderLayer(**layer)
    last = nn.LayerNorm(layer["d_model"]) if norm else None
    return nn.TransformerEncoder(first, num_layers, last, enable_nested_tensor)


def attention() -> dict[str, LayerKind]:
    """torch's attention and encoders."""
    layer = {
        "d_model": size, "nhead": size, "dim_feedforward": size, "dropout": share,
        "activation": word(*ACTIVATIONS), "layer_norm_eps": tiny, "batch_first": flag, "norm_first": flag,
        "bias": flag,
    }  # fmt: skip
    own = {
        "embed_dim": size, "num_heads": size, "dropout": share, "bias": flag, "add_bias_kv": flag,
        "add_zero_attn": flag, "kdim": size, "vdim": size, "batch_first": flag,
    }  # fmt: skip
    whole_encoder = {**layer, "num_layers": whole_number(1, 256), "norm": flag, "enable_nested_tensor": flag}
    return {
        "MultiheadAttention": LayerKind(nn.MultiheadAttention, own, attention_arguments),
        "TransformerEncoderLayer": LayerKind(nn.TransformerEncoderLayer, layer, encoder_layer_arguments),
        "TransformerEncoder": LayerKind(
            nn.TransformerEncoder, whole_encoder, encoder_arguments, make_encoder
        ),
    }


CONTAINERS = {
    "Sequential": LayerKind(nn.Sequential, {}, container=True),
    "ModuleList": LayerKind(nn.ModuleList, {}, container=True),
    "ModuleDict": LayerKind(nn.ModuleDict, {}, container=True),
}
LAYERS: dict[str, LayerKind] = {
    **CONTAINERS, **plain_schemas(), **convolution_schemas(), **by_dimension(), **recurrent(), **attention(),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Ours:
    """A plain module of torchlift that only calls its children: its home, their names, its attributes, and
    those of them that are tensors."""

    home: str
    children: tuple[str, ...] = ()
    checks: Mapping[str, Check] = dataclasses.field(default_factory=dict[str, Check])
    tensors: tuple[str, ...] = ()

    def make(self, kind: type[nn.Module], **arguments: Any) -> nn.Module:
        """The module without its children, which its own constructor would make."""
        module = kind.__new__(kind)
        nn.Module.__init__(module)
        for key in self.checks:
            value = arguments.get(key)
            if key not in self.tensors:
                setattr(module, key, value)
            elif value is None:
                if key in ("weight", "bias"):
                    module.register_parameter(key, None)
            else:
                empty = torch.empty(value[:-2], dtype=DTYPES[value[-2]], device="meta")
                if value[-1]:
                    module.register_parameter(key, nn.Parameter(empty))
                else:
                    module.register_buffer(key, empty)
        return module

    def read(self, module: nn.Module) -> Arguments:
        """The arguments of a module."""
        arguments: Arguments = {}
        for key in self.checks:
            value = getattr(module, key, None)
            if isinstance(value, Tensor):
                name, learns = str(value.dtype).removeprefix("torch."), isinstance(value, nn.Parameter)
                value = [*value.shape, name, learns]
            if value is not None:
                arguments[key] = value
        return arguments


def tensor(value: Any) -> bool:
    """A shape, a number type, and whether it is a parameter."""
    return (
        type(value) is list
        and 2 <= len(value) <= 6
        and all(map(size, value[:-2]))
        and value[-2] in ("float32", "float64", "int16", "int32", "int64")
        and type(value[-1]) is bool
        and (value[-2].startswith("float") or not value[-1])
    )


OURS: dict[str, Ours] = {
    "torchlift.MLP": Ours("models.mlp"),
    "torchlift.LeNet5": Ours("models.lenet", ("trunk", "head")),
    "torchlift.ResNet": Ours(
        "models.residual", ("conv", "bn", "relu", "stage1", "stage2", "stage3", "pool", "head")
    ),
    "torchlift.BasicBlock": Ours(
        "models.residual", ("conv1", "bn1", "relu1", "conv2", "bn2", "shortcut", "relu2")
    ),
    "torchlift.Pad": Ours("models.residual", (), {"extra": natural}),
    "torchlift.Skip": Ours("methods.depth.units"),
    "torchlift.Line": Ours(
        "methods.depth.splice",
        (),
        {"axis": whole_number(-1, 1), "slope": tensor, "offset": tensor},
        ("slope", "offset"),
    ),
    "torchlift.Ranged": Ours(
        "methods.precision.activation_precision",
        ("inner",),
        {"low": real, "high": real, "alpha": tensor},
        ("alpha",),
    ),
    "torchlift.GridActivation": Ours(
        "methods.precision.activation_precision", ("ranged",), {"bits": tensor}, ("bits",)
    ),
    "torchlift.CountedLayerNorm": Ours(
        "channels.layers",
        (),
        {"eps": tiny, "count": size, "weight": tensor, "bias": tensor},
        ("weight", "bias"),
    ),
}


def layer_of(name: Any) -> LayerKind:
    """A kind of the closed list by its name in a file."""
    if isinstance(name, str) and name in LAYERS:
        return LAYERS[name]
    if isinstance(name, str) and name in OURS:
        ours = OURS[name]
        kind = getattr(importlib.import_module(f"torchlift.{ours.home}"), name.partition(".")[2])
        make, container = functools.partial(ours.make, kind), bool(ours.children) or kind.__name__ == "MLP"
        return LayerKind(kind, ours.checks, ours.read, make, container, ours.children)
    raise PackedError(f"{name!r} is not a kind of module that a file may hold.")


def kind_name(module: nn.Module) -> str | None:
    """The name that a file has for a module's class; None where the class is not of the list."""
    kind = type(module)
    name = f"torchlift.{kind.__name__}" if kind.__module__.startswith("torchlift.") else kind.__name__
    if name in LAYERS or name in OURS:
        return name if layer_of(name).kind is kind else None
    return None


def build(name: Any, arguments: Any) -> nn.Module:
    """A module without memory, from checked arguments."""
    layer = layer_of(name)
    if type(arguments) is not dict or not set(arguments) <= set(layer.checks):
        raise PackedError(f"{name} has arguments that it does not have.")
    for key, value in arguments.items():
        if not layer.checks[key](value):
            raise PackedError(f"{name} cannot have {key} = {value!r:.80}.")
    arguments_as_tuples = {
        key: tuple(value) if type(value) is list else value for key, value in arguments.items()
    }
    maker = layer.make or layer.kind
    try:
        with warnings.catch_warnings(), torch.device("meta"):
            warnings.simplefilter("ignore")
            return maker(**arguments_as_tuples).eval()
    except Exception as error:
        raise PackedError(f"{name} cannot be built from these arguments ({str(error)[:150]}).") from error


def arguments_of(module: nn.Module, name: str) -> Arguments:
    """The arguments that a module of the list was made from, but for the defaults."""
    layer = layer_of(name)
    arguments = layer.read(module) if layer.read is not None else {}
    for key in layer.checks if layer.read is None else ():
        value = getattr(module, key)
        arguments[key] = (
            value is not None if isinstance(value, Tensor) or (value is None and key == "bias") else value
        )
    signature = inspect.signature(layer.make or layer.kind).parameters
    defaults = {key: parameter.default for key, parameter in signature.items()}
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in arguments.items()
        if key not in defaults or not same_attribute(value, defaults[key])
    }


def same_attribute(one: Any, other: Any) -> bool:
    """Whether two attributes are the same for a layer: equal, and of one type."""
    if isinstance(one, Tensor | nn.Module) or isinstance(other, Tensor | nn.Module):
        return isinstance(one, type(other)) or isinstance(other, type(one))
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:  # an attribute of one's own may compare in any way
        return False
