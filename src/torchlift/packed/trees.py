"""A module tree as plain data: each module is its class by name, its plain attributes, and the numbers of its
tensors.

Nothing that runs is stored. :mod:`torchlift.packed.readers` builds the tree again.
"""

import math
import types
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.core.stored import PREFIXES
from torchlift.errors import TorchliftError
from torchlift.packed.classes import FUNCTIONS, is_config, path_of

INTERNAL = frozenset({*vars(nn.Module()), "_flat_weights", "_flat_weight_refs"}) - {"training"}

Tree = dict[str, Any]
NEXT = -1
"""In place of a number: the tensor after the last one that was named so. Equal layers are then equal text."""


class Writer:
    """Collects tensors while a tree is described; shared ones stand once."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.numbers: dict[Any, int] = {}
        self.modules: dict[int, int] = {}

    def tensor(self, tensor: Tensor) -> int:
        """The number of a tensor, NEXT where it is new; two that share their memory whole have one."""
        place = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
        key = place if tensor.numel() else id(tensor)
        if key not in self.numbers:
            self.numbers[key] = len(self.tensors)
            self.tensors.append(tensor)
            return NEXT
        return self.numbers[key]

    def module(self, module: nn.Module, name: str = "") -> Tree:
        """A module and all below it."""
        if id(module) in self.modules:
            return {"same_as": self.modules[id(module)]}
        self.modules[id(module)] = len(self.modules)
        kind, held = type(module), vars(module)
        return {
            "class": path_of(kind),
            "plain": {
                key: self.value(value, f"{name}.{key}")
                for key, value in held.items()
                if key not in INTERNAL and key in getattr(kind, "STORED", held)
            },
            "parameters": {
                key: None if p is None else [self.tensor(p), p.requires_grad]
                for key, p in held["_parameters"].items()
            },
            "buffers": {
                key: None if b is None else [self.tensor(b), key not in held["_non_persistent_buffers_set"]]
                for key, b in held["_buffers"].items()
                if not key.startswith(PREFIXES)
            },
            "children": {
                key: None if child is None else self.module(child, f"{name}.{key}")
                for key, child in held["_modules"].items()
            },
        }

    def value(self, value: Any, name: str) -> Any:
        """An attribute as data; what has no such form is named in the error."""
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, list):
            return [self.value(part, name) for part in value]
        if isinstance(value, tuple):
            return {"tuple": [self.value(part, name) for part in value]}
        if isinstance(value, dict):
            return {"dict": [[self.value(k, name), self.value(v, name)] for k, v in value.items()]}
        if isinstance(value, set | frozenset):
            return {"set": sorted(self.value(part, name) for part in value)}
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        if isinstance(value, torch.device):
            return {"device": str(value)}
        if isinstance(value, Tensor):
            return {"tensor": self.tensor(value)}
        if isinstance(value, nn.Module):
            return {"module": self.module(value, name)}
        if isinstance(value, types.FunctionType | types.BuiltinFunctionType):
            path = f"{value.__module__}:{value.__name__}"
            if FUNCTIONS.get(path) is value:
                return {"function": path}
        if is_config(type(value)):
            return self.config(value, name)
        raise TorchliftError(
            f"save: attribute {name.lstrip('.')} ({type(value).__name__}) has no plain form; "
            "save(model, path, example=x) stores the graph instead of the attributes."
        )

    def config(self, value: Any, name: str) -> Any:
        """A configuration of transformers as data."""
        values = value.to_dict()
        if hasattr(value, "_attn_implementation"):  # a model's; how to generate text has its own, without
            values = {**values, "attn_implementation": value._attn_implementation}
        return {"config": path_of(type(value)), "values": self.value(values, name)}
