"""A model, module by module: what two runs must have in common to be the same."""

import functools
import types
from typing import Any

from torch import nn

from torchlift.train.run.digest import PLAIN, digest, from_library, public


def module_tree(model: nn.Module) -> dict[str, str]:
    """Every module by its dotted name: type, settings, and a digest of its code where it is not torch's."""
    return {name or ".": module_line(part) for name, part in model.named_modules(remove_duplicate=False)}


def module_line(module: nn.Module) -> str:
    """One module in one line."""
    kind = type(module)
    attributes = public(module)
    printed = module.extra_repr()
    plain = [f"{k}={v!r}" for k, v in attributes.items() if settled(v) and f"{k}={v!r}" not in printed]
    called = [f"{k}={digest(v)}" for k, v in attributes.items() if isinstance(v, types.FunctionType)]
    code = [] if from_library(kind) else [f"code={forward_code(kind)}"]
    inside = ", ".join(part for part in [printed, *plain, *called, *code] if part)
    return f"{kind.__module__}.{kind.__qualname__}({inside})"


def settled(value: Any) -> bool:
    """Whether a value is a number, a word, or a tuple of such."""
    return isinstance(value, PLAIN) or (isinstance(value, tuple) and all(settled(part) for part in value))


@functools.cache
def forward_code(kind: type[nn.Module]) -> str:
    """A digest of what a class of the user's does in its forward pass."""
    return digest(kind.forward)[:8]
