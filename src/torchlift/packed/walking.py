"""A walk through a program's steps on tensors without memory: every shape, before anything is computed."""

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torchlift.packed import arguments
from torchlift.packed.budget import PackedError, printed
from torchlift.packed.operations import CHECKS, operation

Step = tuple[str, Any, Any]
"""An operation by name, its arguments and its keyword arguments; ``{"value": n}`` refers to value n."""


def references(value: Any) -> list[Any]:
    """The values that arguments refer to."""
    if isinstance(value, dict):
        held = cast("dict[str, Any]", value)
        return (
            [held["value"]] if list(held) == ["value"] else [r for v in held.values() for r in references(v)]
        )
    return [r for part in value for r in references(part)] if isinstance(value, list | tuple) else []


def filled(value: Any, values: list[Any]) -> Any:
    """Arguments with the references in them replaced by values."""
    if isinstance(value, dict):
        held = cast("dict[str, Any]", value)
        if list(held) == ["value"]:
            return values[held["value"]]
        return {key: filled(part, values) for key, part in held.items()}
    if isinstance(value, list | tuple):
        return type(value)(filled(part, values) for part in cast("list[Any]", value))
    return value


class Meter(TorchDispatchMode):
    """Measures what every operation would make, those inside of others too."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """One operation on tensors without memory."""
        made = func(*args, **(kwargs or {}))
        if size_of(made) > self.limit:
            raise PackedError(f"would take more than {printed(self.limit)}; raise limit= in load.")
        return made


def size_of(value: Any) -> int:
    """Bytes of the tensors in a value; a dimension of zero counts as one, since loops run over the others."""
    tensors = [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
    return sum(math.prod(max(n, 1) for n in tensor.shape) * tensor.element_size() for tensor in tensors)


def walk(steps: list[Step], endings: list[list[int]], held: list[Any], limit: int) -> None:
    """Run the steps on tensors without memory; refuse what a kernel should not see."""
    values: list[Any] = [x.detach().to("meta") if isinstance(x, Tensor) else x for x in held]
    alive = 0
    with torch.no_grad(), Meter(limit):
        for (name, raw_args, raw_kwargs), done in zip(steps, endings, strict=True):
            args, kwargs = list(filled(raw_args, values)), dict(filled(raw_kwargs, values))
            made = walk_step(name, args, kwargs)
            alive += size_of(made)
            values.append(made)
            if alive > limit:
                raise PackedError(f"operation {name!r} would pass {printed(limit)}; raise limit= in load.")
            for number in done:
                alive -= size_of(values[number])
                values[number] = None


def walk_step(name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """One step on tensors without memory."""
    function = operation(name)
    if name in CHECKS:
        return None
    if name.startswith("operator."):
        arguments.arithmetic(name, args, kwargs)
    else:
        arguments.check(name, function, args, kwargs)
        if kwargs.get("device") is not None or makes(function):
            kwargs["device"] = "meta"
    try:
        return function(*args, **kwargs)
    except PackedError as error:
        raise PackedError(f"operation {name!r} {error}") from error
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise PackedError(f"operation {name!r} does not fit its arguments ({reason}).") from error


def makes(function: Any) -> bool:
    """Whether an operation makes a tensor out of nothing."""
    schema = function._schema.arguments
    return any(a.name == "device" for a in schema) and not any("Tensor" in str(a.type) for a in schema)
