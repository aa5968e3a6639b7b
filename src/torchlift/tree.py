"""Nested tuples, lists and dicts of tensors: data, batches, states."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from torchlift.errors import DataError


def leaves(tree: Any) -> Iterator[Tensor]:
    """The tensors, in order; anything else inside is an error."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, Mapping):
        for branch in tree.values():
            yield from leaves(branch)
    elif isinstance(tree, tuple | list):
        for branch in tree:
            yield from leaves(branch)
    else:
        raise DataError(
            f"data in memory are tensors (x, y) or a dict of tensors, not a {type(tree).__name__}."
        )


def each(function: Callable[[Tensor], Any], tree: Any) -> Any:
    """The tree with ``function`` applied to every tensor; what is not a tensor stays."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, Mapping):
        return {name: each(function, branch) for name, branch in tree.items()}
    if isinstance(tree, tuple | list):
        return tuple([each(function, branch) for branch in tree])
    return tree


def select_rows(tree: Any, index: Tensor) -> Any:
    """The indexed rows of every tensor."""
    return each(lambda tensor: tensor.index_select(0, index), tree)


def move(tree: Any, device: torch.device) -> Any:
    """Every tensor on the device."""
    return each(lambda tensor: tensor.to(device, non_blocking=True), tree)


def like(tree: Any, model: Tensor) -> Any:
    """Every tensor on a model's device, floating-point ones in its precision."""
    return each(lambda t: t.to(model) if t.is_floating_point() else t.to(model.device), tree)
