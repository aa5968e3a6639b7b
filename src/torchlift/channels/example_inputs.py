"""Calling a model on examples of any form, and the inputs that an exact cut must survive."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.channels.copies import copied
from torchlift.core import Problem
from torchlift.errors import TorchliftError
from torchlift.loss import call

Example = Any
"""A tensor, a tuple of positional arguments, or a dict of keyword arguments."""


def called(model: nn.Module, example: Example) -> Any:
    """The model at an example, of which it gets a copy: it may write to its inputs."""
    return call(model, changed(example, torch.clone))


def check_plain(model: object) -> None:
    """Raise on what is not a model, or a lifted one."""
    if not isinstance(model, nn.Module) or isinstance(model, Problem):
        advice = " (pass task.model)" if isinstance(model, Problem) else ""
        raise TorchliftError(f"this takes a plain nn.Module; got a {type(model).__name__}{advice}.")


def taken(model: nn.Module, example: Example) -> nn.Module:
    """A copy of the model in evaluation mode that took the example; else one line that names the fix."""
    check_plain(model)
    twin = copied(model).eval()
    try:
        with torch.no_grad():
            called(twin, example)
    except Exception as error:  # whatever a user's model raises
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TorchliftError(
            f"{type(model).__name__} does not take this example ({why}): {remedy(model, example)}."
        ) from error
    return twin


def remedy(model: nn.Module, example: Example) -> str:
    """What to pass in place of an example that a model does not take."""
    if isinstance(example, tuple | list) and example and all(isinstance(size, int) for size in example):
        return f"pass a tensor of that shape, torch.zeros({', '.join(map(str, example))})"
    tensor, weight = next(tensors(example), None), next(model.parameters(), None)
    if tensor is None:
        return "pass a tensor, a tuple of arguments or a dict of keyword arguments"
    if weight is not None and tensor.dtype != weight.dtype and tensor.ndim > 2:
        return f"convert it with x.to({weight.dtype})"
    return "pass a batch as the model gets it in training"


def tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in what a model takes or returns, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for entry in value.values():
            yield from tensors(entry)
    elif isinstance(value, tuple | list):
        for entry in value:
            yield from tensors(entry)


Output = str | int | Sequence[str | int] | None
"""What of a model's output counts: a key, an index, several; None: all of it but the states inside."""

INSIDE = ("hidden", "attention", "past_key", "model_output", "embeds", "cache")
"""What keys of a dictionary are called that hold states inside the model, beside its logits."""


def pinned(out: Any, output: Output = None) -> list[Tensor]:
    """The tensors of an output that count; of a dictionary with logits, not those that are INSIDE."""
    if isinstance(output, str | int):
        output = [output]
    if output is not None:
        try:
            return [tensor for key in output for tensor in tensors(out[key])]
        except (KeyError, IndexError, TypeError) as error:
            contents = (
                f"it has {', '.join(map(str, out))}" if isinstance(out, Mapping) else type(out).__name__
            )
            raise TorchliftError(
                f"output={output!r} is not among the model's outputs: {contents}."
            ) from error
    if isinstance(out, Mapping) and any(str(key).startswith("logits") for key in out):
        out = {key: entry for key, entry in out.items() if not any(word in str(key) for word in INSIDE)}
    return list(tensors(out))


class PinnedOutput(nn.Module):
    """A model that gives only what counts of its output."""

    def __init__(self, model: nn.Module, output: Output) -> None:
        super().__init__()
        self.model, self.output = model, output

    def forward(self, *args: Any, **kwargs: Any) -> list[Tensor]:
        """The tensors that count."""
        return pinned(self.model(*args, **kwargs), self.output)


def changed(example: Example, function: Callable[[Tensor], Tensor]) -> Example:
    """The example with a function applied to each of its tensors."""
    if isinstance(example, Tensor):
        return function(example)
    if isinstance(example, Mapping):
        return {key: changed(entry, function) for key, entry in example.items()}
    if isinstance(example, tuple | list):
        return tuple(changed(entry, function) for entry in example)
    return example


def as_type(example: Example, dtype: torch.dtype) -> Example:
    """The example with its numbers of another type."""
    return changed(example, lambda x: x.to(dtype) if x.is_floating_point() else x)


def precise(model: nn.Module, dtype: torch.dtype, *, own: bool = False) -> nn.Module:
    """A copy for evaluation with numbers of another type; an ε that depends on the type stays what it was.

    ``own``: the model itself, where nobody else needs it.
    """
    twin = (model if own else copied(model)).eval()
    for layer in twin.modules():
        if isinstance(layer, nn.RMSNorm) and layer.eps is None:  # pyright: ignore[reportUnnecessaryComparison]
            like = next(layer.parameters(), torch.zeros(()))
            layer.eps = torch.finfo(like.dtype).eps
    other = any(x.is_floating_point() and x.dtype != dtype for x in [*twin.parameters(), *twin.buffers()])
    return twin.to(dtype) if other else twin


def few(example: Example, samples: int = 2) -> Example:
    """The first samples."""
    return changed(example, lambda x: x[:samples] if x.ndim else x)


LARGE = 2**14
"""Entries of a sample above which it is cropped for what needs no more of it."""


def smaller_examples(example: Example) -> Iterator[Example]:
    """Two samples cropped to about LARGE entries, where they are larger; two samples; the example."""
    whole = few(example)
    crop = whole
    while max((x[0].numel() for x in tensors(crop) if x.ndim), default=0) > LARGE:
        before, crop = crop, changed(crop, halved(crop))
        if not differ(before, crop):
            break
    for one, other in ((crop, whole), (whole, example)):
        if differ(one, other):
            yield one
    yield example


def halved(example: Example) -> Callable[[Tensor], Tensor]:
    """Half of a map's places, or of what is longest in a sequence; dimensions of less than 64 stay."""
    lengths = {max(x.shape[1:]) for x in tensors(example) if x.ndim in (2, 3)}

    def change(x: Tensor) -> Tensor:
        for dim in range(2, x.ndim) if x.ndim >= 4 else range(1, x.ndim):
            if x.shape[dim] >= 64 and (x.ndim >= 4 or x.shape[dim] in lengths):
                x = x.narrow(dim, 0, x.shape[dim] // 2)
        return x

    return change


def other_shapes(twin: nn.Module, example: Example) -> Iterator[Example]:
    """The example in other shapes that the model (a copy in evaluation mode) takes: smaller, larger, and of
    another number of samples."""
    resizing = False
    for factor in (0.5, 1.5, 2.0, 1.0):
        other = changed(example, resized(example, factor))
        if (factor == 2 and resizing) or (factor != 1 and not differ(example, other)):
            continue
        for some in (changed(other, batch_of(1)), changed(other, batch_of(2)), other):
            if differ(example, some) and accepts(twin, some):
                resizing |= factor != 1
                yield some
                break


def other_sizes(example: Example) -> Iterator[Example]:
    """The example in other sizes, where it has any; at last as it is."""
    for factor in (0.5, 1.5, 2.0):
        other = changed(example, resized(example, factor))
        if differ(example, other):
            yield other
    yield example


def noise(scale: float) -> Callable[[Tensor], Tensor]:
    """Random numbers in place of numbers; whole numbers keep to those that are there."""
    generator = torch.Generator().manual_seed(int(scale))

    def draw(x: Tensor) -> Tensor:
        if x.is_floating_point():
            return (scale * torch.randn(x.shape, generator=generator, dtype=torch.float64)).to(x)
        return x.roll(1, -1) if x.ndim else x

    return draw


def batch_of(samples: int) -> Callable[[Tensor], Tensor]:
    """So many samples."""
    return lambda x: torch.cat([x] * samples)[:samples] if x.ndim else x


def resized(example: Example, factor: float) -> Callable[[Tensor], Tensor]:
    """Another image size or sequence length: maps in their last dimensions, sequences in their second."""
    lengths = {x.shape[1] for x in tensors(example) if x.ndim in (2, 3) and not x.is_floating_point()}
    lengths |= {x.shape[1] for x in tensors(example) if x.ndim == 3 and x.is_floating_point()}

    def change(x: Tensor) -> Tensor:
        dims = range(2, x.ndim) if x.ndim >= 4 else [d for d in (1,) if x.ndim > 1 and x.shape[1] in lengths]
        if x.ndim == 2 and x.is_floating_point():
            dims = [d for d in dims if len(lengths) and x.shape[1] in lengths]
        for dim in dims:
            size = max(1, int(x.shape[dim] * factor))
            index = torch.arange(size, device=x.device) % x.shape[dim]
            x = x.index_select(dim, index)
        return x

    return change


def accepts(model: nn.Module, example: Example) -> bool:
    """Whether a model takes an example at all."""
    try:
        with torch.no_grad():
            called(model, example)
    except Exception:  # whatever a user's model raises at a size it is not made for
        return False
    return True


def differ(example: Example, other: Example) -> bool:
    """Whether two examples differ in shape."""
    return [x.shape for x in tensors(example)] != [x.shape for x in tensors(other)]


def layer_inputs(model: nn.Module, names: set[str], examples: list[Example]) -> dict[str, list[Tensor]]:
    """What each named layer is given, at every call, over all examples."""
    seen: dict[str, list[Tensor]] = {name: [] for name in names}

    def keep(name: str) -> Any:
        return lambda _module, args: seen[name].append(next(tensors(args)).detach())

    hooks = [model.get_submodule(name).register_forward_pre_hook(keep(name)) for name in names]
    try:
        with torch.no_grad():
            for example in examples:
                called(model, example)
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def outputs(model: nn.Module, examples: list[Example]) -> list[Tensor]:
    """All tensors the model returns on the examples."""
    with torch.no_grad():
        return [tensor for example in examples for tensor in tensors(called(model, example))]
