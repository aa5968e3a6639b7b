"""A model, module by module: what two runs must have in common to be the same."""

import types
from typing import Any

from torch import nn

from torchlift.train.run.digest import PLAIN, Digest, attributes, digest, from_library, is_data


def module_tree(model: nn.Module) -> dict[str, str]:
    """Every module by its dotted name: type, settings, and a digest of its code where it is not torch's."""
    return {name or ".": module_line(module) for name, module in model.named_modules(remove_duplicate=False)}


def module_line(module: nn.Module) -> str:
    """One module in one line."""
    kind = type(module)
    own = attributes(module)
    printed = module.extra_repr()
    plain = [f"{k}={v!r}" for k, v in own.items() if is_plain_value(v) and f"{k}={v!r}" not in printed]
    other = [f"{k}={digest(v)}" for k, v in own.items() if not is_plain_value(v) and is_digested(v)]
    hooks = [f"hooks={digest(own_hooks)}"] if (own_hooks := hooks_of(module)) else []
    code = [] if from_library(kind) else [f"code={class_code(kind)}"]
    inside = ", ".join(text for text in [printed, *plain, *other, *hooks, *code] if text)
    return f"{kind.__module__}.{kind.__qualname__}({inside})"


def is_plain_value(value: Any) -> bool:
    """Whether a value is a number, a word, or a tuple of such."""
    return isinstance(value, PLAIN) or (
        isinstance(value, tuple) and all(is_plain_value(item) for item in value)
    )


def is_digested(value: Any) -> bool:
    """Whether an attribute that is not written out is digested: data, containers of data, and functions."""
    if isinstance(value, dict):
        return all(is_digested(item) or is_plain_value(item) for item in value.values())
    return is_data(value) or isinstance(value, types.FunctionType)


def hooks_of(module: nn.Module) -> list[Any]:
    """The functions that are called before, behind or after a module, in order."""
    kinds = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
    return [(kind, list(vars(module)[kind].values())) for kind in kinds if vars(module).get(kind)]


def class_code(kind: type[nn.Module]) -> str:
    """A digest of what a class of the user's does."""
    total = Digest()
    total.add_class(kind)
    total.add(kind.forward)
    return total.hash.hexdigest()[:8]
