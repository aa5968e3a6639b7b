"""Which classes a file may name: an explicit list. A name is looked up in it; it never leads through other
modules.

torch.nn's public layers · torchlift's own modules · models, configurations and activations of transformers
(which it imports lazily) · what the user hands to ``load(classes=…)`` or has given to :func:`register`.
"""

import importlib
import re
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from torchlift.packed.budget import PackedError

Kind = type[nn.Module]


def path_of(kind: type) -> str:
    """A class as a file names it."""
    return f"{kind.__module__}:{kind.__qualname__}"


def public_layers() -> dict[str, Kind]:
    """torch.nn's own layers, by path."""
    kinds = [kind for kind in vars(nn).values() if isinstance(kind, type) and issubclass(kind, nn.Module)]
    kinds = [kind for kind in kinds if kind.__module__.startswith("torch.nn.modules.")]
    return {path_of(kind): kind for kind in (*kinds, NonDynamicallyQuantizableLinear)}


LAYERS = public_layers()
REGISTERED: dict[str, Kind] = {}
OURS = re.compile(r"torchlift\.(models|deploy|lifts|lifted|core)(\.[a-z0-9_]+){0,2}")
THEIRS = re.compile(
    r"transformers\.(models\.[a-z0-9_]+\.(modeling|configuration)_[a-z0-9_]+"
    r"|activations|pytorch_utils|generation\.configuration_utils)"
)
ACTIVATIONS = (
    "relu", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "mish", "softplus", "softsign",
    "glu", "sigmoid", "logsigmoid", "hardsigmoid", "hardswish", "hardtanh", "tanh", "tanhshrink",
    "softshrink", "hardshrink", "softmax", "softmin", "log_softmax", "normalize",
)  # fmt: skip


def activations() -> dict[str, Any]:
    """Functions that a model may hold as an attribute, by the paths they have in torch."""
    found: dict[str, Any] = {}
    for space in (functional, torch):
        for name in ACTIVATIONS:
            function = getattr(space, name, None)
            if function is not None:
                found[f"{space.__name__}:{name}"] = function
                found[f"{function.__module__}:{function.__name__}"] = function
    return found


FUNCTIONS = activations()


def register(*kinds: Kind) -> None:
    """Let files that :func:`load` reads name these module classes, from now on in this process."""
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
            raise PackedError(f"register takes module classes, got {kind!r}.")
        REGISTERED[path_of(kind)] = kind


def find(path: Any, given: Iterable[Kind]) -> Kind:
    """The module class a file names, if it may."""
    if not isinstance(path, str):
        raise PackedError("a class has no name.")
    for kind in given:
        if path_of(kind) == path:
            return kind
    kind = LAYERS.get(path) or REGISTERED.get(path) or defined(path, OURS) or defined(path, THEIRS)
    if kind is None:
        raise PackedError(
            f"class {path[:200]} is not known here: pass load(path, classes=[...]) if it is yours, "
            "or save with example=x, which stores the graph and needs no class."
        )
    if not issubclass(kind, nn.Module):
        raise PackedError(f"{path} is no module class.")
    return kind


def defined(path: str, modules: re.Pattern[str]) -> type | None:
    """A class by the module that defines it and its own plain name, or None."""
    module, _, name = path.partition(":")
    if not modules.fullmatch(module) or not name.isidentifier():
        return None
    try:
        found = vars(importlib.import_module(module)).get(name)
    except ImportError:
        return None
    return found if isinstance(found, type) and path_of(found) == path else None


def configuration(path: Any) -> Any:
    """A configuration class of transformers by path."""
    kind = defined(path, THEIRS) if isinstance(path, str) else None
    if kind is None or not is_config(kind):
        raise PackedError(f"{path!r} is no configuration.")
    return kind


def is_config(kind: type) -> bool:
    """Whether a class is a configuration of transformers (plain data with ``to_dict`` and ``from_dict``)."""
    return any(
        base.__module__.startswith("transformers.") and base.__name__.endswith("Config")
        for base in kind.__mro__
    )


def function(path: Any) -> Any:
    """An activation by path."""
    if not isinstance(path, str) or path not in FUNCTIONS:
        raise PackedError(f"function {path!r} is not allowed.")
    return FUNCTIONS[path]
