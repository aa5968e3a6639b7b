"""Settings as text that is the same tomorrow, and what a model and data are: no addresses, no machine."""

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from torchlift.methods.recipe import OneLift
from torchlift.train.batches import Accumulated, Loader, Source, Tensors
from torchlift.train.run.digest import attributes, digest
from torchlift.train.run.modules import module_tree
from torchlift.tree import leaves


def describe_setting(value: Any) -> str:
    """A stable, readable name of a setting: a recipe, a factory, a number."""
    if isinstance(value, OneLift):
        return describe_setting(value.lift)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        inside = ", ".join(
            f"{f.name}={describe_setting(getattr(value, f.name))}" for f in dataclasses.fields(value)
        )
        return f"{type(value).__name__}({inside})"
    if isinstance(value, functools.partial):
        arguments = [describe_setting(v) for v in value.args] + [
            f"{k}={describe_setting(v)}" for k, v in value.keywords.items()
        ]
        return f"{describe_setting(value.func)}({', '.join(arguments)})"
    if isinstance(value, Tensor):
        return f"tensor{tuple(value.shape)}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(describe_setting(item) for item in value)}]"
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{describe_setting(k)}: {describe_setting(v)}" for k, v in value.items()) + "}"
        )
    if callable(value) and not isinstance(value, nn.Module) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def brief(value: Any) -> str:
    """As :func:`describe_setting`, for people: fields at their defaults are left out."""
    if isinstance(value, OneLift):
        return brief(value.lift)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {brief(item)}" for key, item in value.items()) + "}"
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return describe_setting(value)
    fields = [(f.name, getattr(value, f.name), f.default) for f in dataclasses.fields(value)]
    fields = [(name, own, usual) for name, own, usual in fields if own is not None]
    options = [
        f"{name}={brief(own)}"
        for name, own, usual in fields
        if describe_setting(own) != describe_setting(usual)
    ]
    return f"{type(value).__name__}({', '.join(options)})"


def describe_model(model: nn.Module) -> dict[str, Any]:
    """What a model is: every module with its settings, and a digest of all weights and buffers."""
    state = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    buffers = {name: value for name, value in model.named_buffers() if name not in state}
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    asleep = [name for name, module in model.named_modules() if model.training and not module.training]
    return {
        "class": f"{type(model).__module__}:{type(model).__qualname__}",
        "modules": module_tree(model),
        "frozen": frozen,
        "evaluating": asleep,
        "weights": digest(state, buffers) if buffers else digest(state),
    }


def describe_data(data: Source | None) -> str:
    """What data are: the digest of every sample in memory, or of the dataset behind a loader."""
    if data is None:
        return "none"
    data = data.inner if isinstance(data, Accumulated) else data
    if isinstance(data, Tensors):
        tensors = list(leaves(data.tree))
        keys = list(data.tree) if isinstance(data.tree, dict) else []
        return f"{data.samples} samples, {digest(keys, tensors)}"
    assert isinstance(data, Loader)
    loader = data.loader
    sampler = {k: v for k, v in attributes(loader.sampler).items() if k not in ("data_source", "generator")}
    how = (loader.batch_size, loader.drop_last, type(loader.sampler).__name__, sampler, loader.num_workers)
    return f"a DataLoader of {data.steps()} batches, {digest(how, loader.dataset, loader.collate_fn)}"
