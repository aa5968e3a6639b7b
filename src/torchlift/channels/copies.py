"""Deep copies of models, as ``copy.deepcopy`` makes them, without its detours for every attribute."""

import copy
import functools
from collections import Counter, OrderedDict
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd  # pyright: ignore[reportPrivateUsage]

SIMPLE = {bool, int, float, str, type(None), type, torch.dtype, FunctionType, BuiltinFunctionType}
DICTS = {dict, OrderedDict}
HOW = ("__deepcopy__", "__reduce__", "__reduce_ex__", "__getstate__", "__new__", "__slots__")
"""By these a class says that its objects are to be copied in a way of their own."""


def sharing(model: nn.Module) -> nn.Module:
    """A copy with modules and buffers of its own and the model's parameters themselves."""
    return copied(model, {id(parameter): parameter for parameter in model.parameters()})


def copied(model: nn.Module, memo: dict[int, Any] | None = None) -> nn.Module:
    """A deep copy; ``memo`` as of ``copy.deepcopy``."""
    memo = {id(buffer): buffer.clone() for buffer in lone_buffers(model)} | (memo or {})
    layers = [layer for layer in model.modules() if has_plain_attributes(type(layer))]
    for layer in layers:
        memo[id(layer)] = object.__new__(type(layer))
    for layer in layers:
        attributes = vars(memo[id(layer)])
        for key, value in vars(layer).items():
            kind = type(value)
            if kind in SIMPLE:
                attributes[key] = value
            elif kind in DICTS and not value:
                attributes[key] = memo.setdefault(id(value), kind())
            else:
                attributes[key] = duplicate(value, memo)
    return copy.deepcopy(model, memo)


def duplicate(value: Any, memo: dict[int, Any]) -> Any:
    """The copy of an attribute. Most are dicts."""
    kind = type(value)
    if kind is tuple and SIMPLE.issuperset(map(type, value)):
        return value
    if kind not in DICTS or id(value) in memo or not SIMPLE.issuperset(map(type, value)):
        return copy.deepcopy(value, memo)
    memo[id(value)] = twin = kind()
    for key, entry in value.items():
        twin[key] = entry if type(entry) in SIMPLE else copy.deepcopy(entry, memo)
    return twin


@functools.cache
def has_plain_attributes(kind: type[nn.Module]) -> bool:
    """Whether modules of a class are their attributes and nothing else."""
    usual = (nn.Module.__setstate__, _ConvNd.__setstate__)
    own = any(getattr(kind, how, None) is not getattr(nn.Module, how, None) for how in HOW)
    return not own and kind.__setstate__ in usual


def lone_buffers(model: nn.Module) -> list[Tensor]:
    """Buffers that share their memory with no other and carry nothing."""
    buffers = [
        b for b in model.buffers() if type(b) is Tensor and b.layout is torch.strided and not b.requires_grad
    ]
    users = Counter(b.untyped_storage().data_ptr() for b in buffers)
    return [
        b
        for b in buffers
        if users[(memory := b.untyped_storage()).data_ptr()] == 1
        and memory.nbytes() == b.nbytes
        and not vars(b)
    ]
