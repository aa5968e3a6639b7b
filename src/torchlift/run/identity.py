"""Settings as text that is the same tomorrow: no addresses, no machine."""

import dataclasses
import functools
import hashlib
import re
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.train.batches import Loader, Source, Tensors
from torchlift.tree import leaves


def describe(value: Any) -> str:
    """A stable, readable name of a setting: a recipe, a factory, a number."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        inside = ", ".join(f"{f.name}={describe(getattr(value, f.name))}" for f in dataclasses.fields(value))
        return f"{type(value).__name__}({inside})"
    if isinstance(value, functools.partial):
        given = [describe(v) for v in value.args] + [f"{k}={describe(v)}" for k, v in value.keywords.items()]
        return f"{describe(value.func)}({', '.join(given)})"
    if isinstance(value, Tensor):
        return f"tensor{tuple(value.shape)}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(describe(part) for part in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{describe(k)}: {describe(v)}" for k, v in value.items()) + "}"
    if callable(value) and not isinstance(value, nn.Module) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def structure(model: nn.Module) -> str:
    """A short digest of a model's parameter and buffer names and shapes."""
    parts = "\n".join(f"{name} {tuple(t.shape)} {t.dtype}" for name, t in model.state_dict().items())
    return hashlib.blake2b(parts.encode(), digest_size=8).hexdigest()


def fingerprint(data: Source | None) -> str:
    """What identifies the data: shapes, and a digest of a few hundred samples spread over them."""
    if data is None:
        return "none"
    if isinstance(data, Tensors):
        total = hashlib.blake2b(digest_size=8)
        picks = torch.linspace(0, data.samples - 1, min(256, data.samples)).long()
        for tensor in leaves(data.tree):
            total.update(str(tuple(tensor.shape)).encode())
            rows = tensor.index_select(0, picks.to(tensor.device)).cpu().contiguous()
            total.update(rows.reshape(-1).view(torch.uint8).numpy().tobytes())
        return total.hexdigest()
    assert isinstance(data, Loader)
    return f"DataLoader of {data.steps()} batches"
