"""Hooks on modules: the stack of those at work, and norms that are looked at as a whole."""

import contextlib
from collections.abc import Generator
from typing import Any

import torch
from torch import Tensor

from torchlift.channels.follow import norms as norming
from torchlift.channels.follow.follower import Follower
from torchlift.channels.follow.reader_inputs import Glance
from torchlift.channels.follow.rms_norms import rms_form
from torchlift.channels.layers import CountedLayerNorm


@contextlib.contextmanager
def hooked(f: Follower) -> Generator[None]:
    """Keep the stack of modules at work, and look at some norms as a whole."""
    handles: list[Any] = []
    for name, part in f.parts.items():
        inner = rms_form(part) is not None or isinstance(part, CountedLayerNorm)

        def enter(_m: Any, _given: Any, name: str = name, inner: bool = inner) -> None:
            f.stack.append(name)
            f.silent += inner

        def leave(m: Any, given: Any, out: Any, inner: bool = inner) -> None:
            f.silent -= inner
            if inner and isinstance(out, Tensor) and not f.silent:
                through_norm(f, m, given[0], out)
            f.stack.pop()

        handles.append(part.register_forward_pre_hook(enter))
        handles.append(part.register_forward_hook(leave))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def through_norm(f: Follower, module: Any, x: Tensor, out: Tensor) -> None:
    """Labels through a module that is x / √(mean x² + ε) · w, if it is, or a layer norm that counts."""
    form = rms_form(module)
    f.silent += 1  # what is computed here is not the model's
    with torch.no_grad():
        if isinstance(f, Glance):
            f.norm(x, module.weight)
        elif form is None:
            f.put(out, norming.averaged(f, "counted", x, [module.weight, module.bias]))
        elif (kind := form.kind(module, x.detach(), out.detach())) is None:
            f.give_up([x, module.weight], f"{type(module).__name__} is a norm of unknown form")
            f.put(out, [])
        else:
            f.put(out, norming.averaged(f, kind, x, [module.weight]))
    f.silent -= 1
