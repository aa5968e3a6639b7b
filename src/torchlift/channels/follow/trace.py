"""A model run once under a follower: labels, readers, norms and sizes."""

import contextlib
import dataclasses
import functools
import logging
import traceback
import warnings
from collections.abc import Generator
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from torchlift.channels.copies import sharing
from torchlift.channels.example_inputs import (
    Example,
    Output,
    called,
    check_plain,
    few,
    pinned,
    smaller_examples,
    taken,
    tensors,
)
from torchlift.channels.follow import elementwise, movement, products
from torchlift.channels.follow.constants import CONSTANT, Leaving, storage
from torchlift.channels.follow.follower import Follower
from torchlift.channels.follow.labels import Labels, compressed_labels, varying
from torchlift.channels.follow.norms import counts, through_norm
from torchlift.channels.follow.readers import Readers
from torchlift.channels.follow.rules import Labeled, ModuleSizes, Norm, SliceNormed
from torchlift.core.stored import KEPT, STEP
from torchlift.errors import TorchliftError
from torchlift.loss import plain_attention

_ = (elementwise, movement, products)  # imported for their rules

WAYS = 16
"""Through a model's code, that are followed."""
OUTPUT = "the model's output has these channels"
NUMBERS = "the model's code computes with numbers read off its input, and may do something else for another"
STATE = "the model writes to its own weights or buffers when it runs, and may do something else the next time"


@dataclasses.dataclass(frozen=True, eq=False)
class Trace:
    """What was learned about a model's channels."""

    labels: Labels
    readers: Readers
    norms: tuple[Norm, ...]
    scaled: tuple[SliceNormed, ...]
    shapes: tuple[ModuleSizes, ...]
    samples: int
    """How many samples the multiplications were counted for."""
    weights: frozenset[str]
    """The names of parameters, as opposed to buffers."""
    unproved: str
    """Why another call may do something else than this one did, if that may be."""

    @functools.cached_property
    def starts(self) -> dict[tuple[str, int], int]:
        """The first label of each dimension of each weight."""
        return {(axis.name, axis.dim): axis.start for axis in self.labels.axes}


def traced(
    model: nn.Module,
    example: Example,
    *,
    values: bool = True,
    output: Output | Literal["all"] = "all",
    equal_groups: bool = False,
) -> tuple[Trace, Example]:
    """Follow a user's model, and what it was given for that: two samples where it takes so few.

    The model itself is left alone, and none of its weights is copied. To learn about ``values``, a crop of
    large samples will do; multiplications are counted for whole ones.
    """
    check_plain(model)
    twin = sharing(model).eval()
    failed: Exception | None = None
    for inputs in smaller_examples(example) if values else (few(example), example):
        try:
            return trace(twin, inputs, values=values, output=output, equal_groups=equal_groups), inputs
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            failed = error
    taken(model, example)
    why = f"{type(failed).__name__}: {failed}"
    raise TorchliftError(f"{type(model).__name__} runs, but not while it is followed: {why}") from failed


def trace(
    model: nn.Module,
    example: Example,
    *,
    values: bool = True,
    output: Output | Literal["all"] = "all",
    equal_groups: bool = False,
) -> Trace:
    """Follow a model (in evaluation mode) through one call; channels of its ``output`` stay.

    Without ``values`` nothing is learned about zeros and constants: couplings and costs alone. Convolutions
    in groups lose whole groups, or, with ``equal_groups``, as many channels of each.
    """
    labels = Labels()
    cores = {
        name: labels.add(name, tensor) for name, tensor in named_tensors(model) if tensor.is_floating_point()
    }
    unite_recurrent(model, labels)
    f = Follower(model, labels, Readers(labels.size, values=values), equal_groups=equal_groups)
    for name, tensor in named_tensors(model):
        f.labeled[tensor] = Labeled(tensor.shape, cores.get(name, []), pure=True)
        f.names[id(tensor)] = name
        f.constants.put(tensor, CONSTANT)
    before = named_tensors(model)
    for out in every_way(f, model, example) if values else [followed(f, model, example)]:
        for tensor in tensors(out) if output == "all" else pinned(out, output):
            for core in f.look(tensor).cores:
                labels.freeze(core, OUTPUT)
    straighten(labels, f.spread)
    samples = next((len(x) for x in tensors(example) if x.ndim), 1)
    weights = frozenset(name for name, _ in model.named_parameters())
    kept = {id(tensor) for _, tensor in named_tensors(model) if storage(tensor) not in f.constants.written}
    unproved = NUMBERS if f.constants.escaped else "" if {id(t) for _, t in before} <= kept else STATE
    return Trace(
        labels, f.readers, tuple(f.norms), tuple(f.scaled), tuple(f.shapes), samples, weights, unproved
    )


def followed(f: Follower, model: nn.Module, example: Example) -> Any:
    """What a model gives, followed."""
    with hooked(f), plainly(), f:
        return called(model, example)


def every_way(f: Follower, model: nn.Module, example: Example) -> Generator[Any]:
    """What a model gives, whatever its code is told where it asks about what depends on the input.

    Where it raises for its input then, it gives nothing; where it fails, or has too many ways, nothing is
    proved.
    """
    constants, ways = f.constants, list[tuple[bool, ...]]([()])
    for _ in range(WAYS):
        constants.forced, constants.answers, out = ways.pop(), [], None
        try:
            with Leaving(constants), quietly() if constants.forced else contextlib.nullcontext():
                out = followed(f, model, example)
        except Exception as error:
            if not constants.forced:
                raise
            constants.escaped |= not raised_by_model(error)
            f.stack, f.silent = [], 0
        yield out
        ways += constants.other_ways()
        if constants.escaped or not ways:
            return
    constants.escaped = True


def raised_by_model(error: Exception) -> bool:
    """Whether an error was raised by a model's own code, and not by what it called."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    own = str(frame.f_globals.get("__name__")).split(".")[0] not in ("torch", "torchlift")
    return own and isinstance(error, ValueError | AssertionError | RuntimeError)


@contextlib.contextmanager
def quietly() -> Generator[None]:
    """Without what a model's code logs."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(level)


def named_tensors(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Parameters and buffers by name; what is recorded of a weight beside it goes with the weight."""
    records = tuple(form.format("") for form in (STEP, KEPT))
    buffers = [(n, b) for n, b in model.named_buffers() if not n.rpartition(".")[2].startswith(records)]
    return [*model.named_parameters(), *buffers]


@contextlib.contextmanager
def hooked(f: Follower) -> Generator[None]:
    """Keep the stack of modules at work, and look at some norms as a whole."""
    handles: list[Any] = []
    for name, layer in f.modules.items():
        inner = counts(layer)

        def enter(_module: Any, _input_trace: Any, name: str = name, inner: bool = inner) -> None:
            f.stack.append(name)
            f.silent += inner

        def leave(module: Any, args: Any, out: Any, inner: bool = inner) -> None:
            f.silent -= inner
            if inner and isinstance(out, Tensor) and not f.silent:
                f.silent += 1  # what is computed here is not the model's
                with torch.no_grad():
                    through_norm(f, module, args[0], out)
                f.silent -= 1
            f.stack.pop()

        handles.append(layer.register_forward_pre_hook(enter))
        handles.append(layer.register_forward_hook(leave))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def plainly() -> Generator[None]:
    """Without gradients and without kernels that do many operations at once."""
    with plain_attention(), warnings.catch_warnings(), torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        warnings.simplefilter("ignore")
        with torch.backends.mkldnn.flags(enabled=False):
            yield


def unite_recurrent(model: nn.Module, labels: Labels) -> None:
    """All layers and directions of a torch RNN have one size: unit j of one goes with those of the others."""
    axis_at = {(axis.name, axis.dim): axis for axis in labels.axes}
    for name, layer in model.named_modules():
        if isinstance(layer, nn.RNNBase):
            prefix = f"{name}." if name else ""
            units = [
                axis_at[n, 1].labels
                for key, _ in layer.named_parameters()
                if key.startswith("weight_hh") and ((n := f"{prefix}{key}"), 1) in axis_at
            ]
            for other in units[1:]:
                labels.unite(units[0], other)
            if layer.proj_size:
                for unit in units:
                    labels.freeze(unit, "an LSTM with projections")


def straighten(labels: Labels, spread: list[Tensor]) -> None:
    """No tensor may become ragged: what differs along two dimensions is united along the inner one."""
    before = None
    while before is None or not torch.equal(before, labels.parent):
        before = labels.parent.clone()
        for core in spread:
            own = varying(compressed_labels(labels.roots(core)))
            if len(own) > 1:
                labels.along(core, own - {min(own)})
