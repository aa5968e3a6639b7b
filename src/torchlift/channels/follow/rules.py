"""What is known of a tensor while a model is followed, and the rules of operations by name."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchlift.channels.follow.labels import compressed_labels

if TYPE_CHECKING:
    from torchlift.channels.follow.follower import Follower


@dataclasses.dataclass(eq=False)
class Labeled:
    """What is known of a tensor: labels of its entries, one core (see ``compressed``) for each direction."""

    shape: torch.Size
    cores: list[Tensor]
    wild: bool = False
    """Made of constants alone: fits whatever it meets."""
    pure: bool = False
    """Computed from parameters, buffers and constants alone."""


@dataclasses.dataclass(frozen=True, eq=False)
class Norm:
    """A norm over channels: the module, and the labels of what it averages over."""

    module: str
    kind: str
    labels: Tensor


@dataclasses.dataclass(frozen=True)
class SliceNormed:
    """A weight g · v / ‖v‖ with a norm for each slice of a dimension: names of the two parameters."""

    g: str
    v: str
    dim: int


@dataclasses.dataclass(frozen=True, eq=False)
class ModuleSizes:
    """Sizes that a module asked for in a view or a split, and the labels of the result."""

    module: str
    sizes: tuple[int, ...]
    core: Tensor


FollowRule = Callable[["Follower", Any, Sequence[Any], Mapping[str, Any], Any], None]
RULES: dict[Any, FollowRule] = {}


def rule(*names: str) -> Callable[[FollowRule], FollowRule]:
    """Register a rule for operations of aten by name."""

    def put(function: FollowRule) -> FollowRule:
        for name in names:
            packet = getattr(torch.ops.aten, name, None)
            if packet is not None:
                RULES[packet] = function
        return function

    return put


def words(text: str) -> list[str]:
    """Names, one after the other."""
    return text.split()


def pad(core: Tensor, n: int) -> Tensor:
    """A core with dimensions of size 1 put in front."""
    return core.reshape((1,) * (n - core.ndim) + tuple(core.shape))


def replayed(core: Tensor, shape: Sequence[int], move: Callable[[Tensor], Any]) -> list[Tensor]:
    """What a movement of entries does to labels: for each result, its core."""
    moved = move(core.expand(tuple(shape)))
    return [compressed_labels(piece) for piece in ([moved] if isinstance(moved, Tensor) else list(moved))]


def tensors_in(values: Sequence[Any]) -> list[Tensor]:
    """The tensors among arguments, lists of them included."""
    tensors: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            tensors.append(value)
        elif isinstance(value, list | tuple):
            tensors += tensors_in(value)
    return tensors


def named_arguments(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an operation by name, defaults included."""
    schema = func._schema.arguments
    by_name = {a.name: a.default_value for a in schema if a.has_default_value()}
    by_name |= {a.name: value for a, value in zip(schema, args, strict=False)}
    return by_name | dict(kwargs)
