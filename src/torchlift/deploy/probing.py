"""Calling a model on examples of any form, and looking at what its layers are given."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

Example = Any
"""A tensor, a tuple of positional arguments, or a dict of keyword arguments."""


def call(model: nn.Module, example: Example) -> Any:
    """The model at an example."""
    if isinstance(example, Mapping):
        return model(**example)
    return model(*example) if isinstance(example, tuple | list) else model(example)


def tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in what a model takes or returns, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from tensors(part)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from tensors(part)


def changed(example: Example, function: Any) -> Example:
    """The example with a function applied to each of its tensors."""
    if isinstance(example, Tensor):
        return function(example)
    if isinstance(example, Mapping):
        return {key: changed(part, function) for key, part in example.items()}
    if isinstance(example, tuple | list):
        return tuple(changed(part, function) for part in example)
    return example


def variations(example: Example) -> list[Example]:
    """The example, and noise in its place, small and large: inputs that an exact cut must survive."""
    generator = torch.Generator().manual_seed(0)

    def noise(scale: float) -> Any:
        def draw(x: Tensor) -> Tensor:
            if not x.is_floating_point():
                return x.roll(1, -1) if x.ndim else x
            return (scale * torch.randn(x.shape, generator=generator, dtype=torch.float64)).to(x)

        return draw

    return [example, changed(example, noise(1.0)), changed(example, noise(10.0))]


def inputs_of(model: nn.Module, names: set[str], examples: list[Example]) -> dict[str, list[Tensor]]:
    """What each named layer is given, at every call, over all examples."""
    seen: dict[str, list[Tensor]] = {name: [] for name in names}

    def keep(name: str) -> Any:
        return lambda _module, given: seen[name].append(next(tensors(given)).detach())

    hooks = [model.get_submodule(name).register_forward_pre_hook(keep(name)) for name in names]
    try:
        with torch.no_grad():
            for example in examples:
                call(model, example)
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def outputs(model: nn.Module, examples: list[Example]) -> list[Tensor]:
    """All tensors the model returns on the examples."""
    with torch.no_grad():
        return [part for example in examples for part in tensors(call(model, example))]
