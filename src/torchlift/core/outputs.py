"""What a module puts out: its width, the axis of its features, and one tensor of a structured output."""

import copy
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase  # pyright: ignore[reportPrivateUsage]  (base of all batch norms)
from torch.nn.modules.conv import _ConvNd  # pyright: ignore[reportPrivateUsage]  (base of all convolutions)

from torchlift.errors import TorchliftError

Layout = Literal["maps", "last", "unknown"]
"""Features along axis 1 (batch × channels × height × width), along the last axis, or told by the rank."""


@dataclasses.dataclass(frozen=True)
class OutputShape:
    """The width of a module's output, where its features run, and over how many spatial dimensions."""

    features: int
    layout: Layout
    spatial: int = 2


OWN_VECTORS = ("weight", "bias", "scale", "gain")
"""Vectors as wide as the output of norms and other kinds of linear layers."""


def own_shape(module: nn.Module) -> OutputShape | None:
    """The output shape a single layer fixes, if it fixes one."""
    if isinstance(module, _ConvNd):
        return OutputShape(module.out_channels, "maps", len(module.kernel_size))
    if isinstance(module, _NormBase):
        return OutputShape(module.num_features, "maps")
    if isinstance(module, nn.GroupNorm):
        return OutputShape(module.num_channels, "maps")
    if isinstance(module, nn.RNNBase):
        return OutputShape((module.proj_size or module.hidden_size) * (1 + module.bidirectional), "last")
    if isinstance(module, nn.Linear):
        return OutputShape(module.out_features, "last")
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return OutputShape(module.embedding_dim, "last")
    if isinstance(module, nn.MultiheadAttention):
        return OutputShape(module.embed_dim, "last")
    vectors = {len(p) for n, p in module.named_parameters(recurse=False) if p.ndim == 1 and n in OWN_VECTORS}
    return OutputShape(vectors.pop(), "last") if len(vectors) == 1 else None


def output_shape(module: nn.Module) -> OutputShape | None:
    """The shape fixed by the module itself, or by the last of its descendants that fixes one."""
    shapes = [shape for child in module.modules() if (shape := own_shape(child))]
    return own_shape(module) or (shapes[-1] if shapes else None)


def pick_output(output: Any, index: int | str | None, who: str) -> Tensor:
    """The tensor at ``index`` of a tuple, dict or dataclass; the output itself without an index."""
    value = output if index is None else element(output, index, who)
    if not isinstance(value, Tensor):
        options = ", ".join(f"index={key!r}" for key in keys(output)) or "another module"
        raise TorchliftError(f"{who}: no tensor but a {type(value).__name__} there; choose {options}.")
    return value


def replace(output: Any, index: int | str | None, value: Tensor) -> Any:
    """A shallow copy of the output with ``value`` at ``index``."""
    if index is None:
        return value
    if isinstance(output, Mapping):
        changed = cast(dict[Any, Any], copy.copy(output))
        changed[output_name(output, index)] = value
        return changed
    if isinstance(output, tuple | list):
        elements = [*output]
        elements[int(index)] = value
        return (
            type(output)(*elements)
            if isinstance(output, tuple) and hasattr(output, "_fields")
            else type(output)(elements)
        )
    return dataclasses.replace(output, **{str(index): value})


def element(output: Any, index: int | str, who: str) -> Any:
    """``output[index]``, by attribute where the output is a dataclass."""
    try:
        if isinstance(output, Mapping):
            return output[output_name(output, index)]
        return output[int(index)] if isinstance(output, tuple | list) else getattr(output, str(index))
    except (KeyError, IndexError, ValueError, AttributeError):
        have = ", ".join(repr(key) for key in keys(output)) or f"a {type(output).__name__}"
        raise TorchliftError(f"{who}: no element {index!r} in the output; there is {have}.") from None


def output_name(output: Mapping[Any, Any], index: int | str) -> Any:
    """The key at a position, for outputs that can be read both ways."""
    return list(output)[index] if isinstance(index, int) and index not in output else index


def keys(output: Any) -> Iterator[int | str]:
    """Where tensors are in a structured output."""
    if isinstance(output, Mapping):
        yield from (name for name, value in output.items() if isinstance(value, Tensor))
    elif isinstance(output, tuple | list):
        yield from (number for number, value in enumerate(output) if isinstance(value, Tensor))
    elif dataclasses.is_dataclass(output):
        names = (field.name for field in dataclasses.fields(output))
        yield from (name for name in names if isinstance(getattr(output, name), Tensor))
