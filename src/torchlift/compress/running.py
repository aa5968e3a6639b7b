"""Calls of a network, listened to."""

import contextlib
import ctypes
import os
from collections.abc import Callable, Generator
from typing import Any

import torch
from torch import nn

from torchlift.loss import call, plain_attention

Hook = Callable[[nn.Module, tuple[Any, ...], dict[str, Any], Any], None]


LIBRARY = ctypes.CDLL(None) if os.name == "posix" else None


class Enough(Exception):
    """All layers of a pass have run."""


@contextlib.contextmanager
def listening(model: nn.Module, hooks: dict[str, Hook]) -> Generator[None]:
    """Call hooks behind modules, by name."""
    handles = [
        model.get_submodule(name).register_forward_hook(hook, with_kwargs=True)
        for name, hook in hooks.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def run(model: nn.Module, inputs: Any) -> Any:
    """One call without gradients, which may end early."""
    with torch.no_grad(), plain_attention(), contextlib.suppress(Enough):
        return call(model, inputs)
    return None


def free_memory() -> None:
    """Have the C library give freed memory back: what it keeps of batches adds up from layer to layer."""
    trim = getattr(LIBRARY, "malloc_trim", None)
    if trim is not None:
        trim(0)
