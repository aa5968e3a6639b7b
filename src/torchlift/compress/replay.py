"""Passes that start where they have been: what ran before a layer is kept at one module and skipped.

A module is a boundary where the network's output stays the same, bit for bit, when the module gives what it
gave and all that had ended before it gives NaN. Beyond a boundary nothing of what lies before it matters, so
that a sweep over the layers runs each of them a few times instead of once for every layer behind it.
"""

import contextlib
import dataclasses
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.channels.example_inputs import tensors
from torchlift.compress.running import Hook, listening, run

FLOOR = 2**26
"""Bytes that may be kept whatever the network's size; otherwise half of its size."""

TRIALS = 4
"""Modules tried as the boundary of one layer, the last to end first."""


@dataclasses.dataclass(frozen=True)
class ModuleSpan:
    """When a module that runs once ran, and how large its output is; -1: an output that is not tensors."""

    start: int
    end: int
    bytes_per_sample: float


@dataclasses.dataclass(eq=False)
class Replay:
    """The boundary of a sweep's passes, and its outputs by network and batch."""

    original: nn.Module
    example: Any
    spans: dict[str, ModuleSpan]
    output: list[Tensor]
    room: float
    """Bytes of outputs a sample may keep."""
    boundary: str | None = None
    kept: dict[tuple[bool, int], tuple[int, dict[str, Any]]] = dataclasses.field(
        default_factory=dict[tuple[bool, int], tuple[int, dict[str, Any]]]
    )
    valid: dict[str, bool] = dataclasses.field(default_factory=dict[str, bool])

    @classmethod
    def of(cls, original: nn.Module, work: nn.Module, example: Any, samples: int) -> "Replay":
        """Learn from one call when modules run; ``samples``: of all batches."""
        spans, output = spans_of(original, example)
        spans = {name: span for name, span in spans.items() if name in dict(work.named_modules())}
        size = sum(p.nbytes for p in original.parameters())
        return cls(original, example, spans, output, max(FLOOR, size / 2) / (2 * max(samples, 1)))

    def advance(self, modules: Iterable[str]) -> str | None:
        """The best boundary before these modules: outputs there are kept in the pass that follows."""
        started = [self.spans[name].start if name in self.spans else -1 for name in modules]
        before = [
            (span.end, name)
            for name, span in self.spans.items()
            if span.end < min(started) and 0 <= span.bytes_per_sample <= self.room
        ]
        if all(name != self.boundary for _, name in before):
            self.reached(None)
        for _, name in sorted(before, reverse=True)[:TRIALS]:
            if name == self.boundary or self.is_boundary(name):
                return name
        return self.boundary

    def reached(self, boundary: str | None) -> None:
        """A pass over all batches has kept this boundary's outputs."""
        self.boundary = boundary
        if boundary is None:
            self.kept.clear()

    def is_boundary(self, name: str) -> bool:
        """Whether nothing behind this module depends on what ran before it."""
        if name not in self.valid:
            seen: dict[str, Any] = {}
            with listening(self.original, self.keeping(name, seen)):
                run(self.original, self.example)
            try:
                with replaying(self.original, seen):
                    again = list(tensors(run(self.original, self.example)))
            except Exception:  # whatever a model makes of NaN or of memory that cannot be written to
                again = []
            self.valid[name] = len(again) == len(self.output) and all(map(torch.equal, again, self.output))
        return self.valid[name]

    def keeping(self, name: str, seen: dict[str, Any]) -> dict[str, Hook]:
        """Hooks that keep the output of a boundary, and NaN for all that ended before it started."""
        start = self.spans[name].start
        ended = {n for n, span in self.spans.items() if span.end < start and span.bytes_per_sample >= 0}

        def hook(module: str) -> Hook:
            def ran(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
                del layer, args, kwargs
                seen[module] = mapped(torch.clone if module == name else blank, output)

            return ran

        return {n: hook(n) for n in {name, *(n for n in ended if not inside(n, ended))}}

    @contextlib.contextmanager
    def passing(self, model: nn.Module, number: int, inputs: Any, boundary: str | None) -> Generator[None]:
        """One batch through a network: from the boundary it was kept at, keeping the outputs of another."""
        key = model is self.original, number
        digest = digest_of(inputs)
        earlier, before = self.kept.get(key, (0, {}))
        before = before if earlier == digest and boundary is not None else {}
        if boundary is None or (before and boundary == self.boundary):
            with replaying(model, before):
                yield
            return
        seen: dict[str, Any] = {}
        with replaying(model, before), listening(model, self.keeping(boundary, seen)):
            yield
        if boundary in seen:
            self.kept[key] = digest, seen


def spans_of(model: nn.Module, example: Any) -> tuple[dict[str, ModuleSpan], list[Tensor]]:
    """When each module that runs once started and ended, and the network's output."""
    calls, clock = Counter[str](), [0]
    starts: dict[str, int] = {}
    spans: dict[str, ModuleSpan] = {}
    count = max(1, len(next(tensors(example))))

    def before(name: str) -> Callable[..., None]:
        def started(*_: Any) -> None:
            calls[name] += 1
            clock[0] += 1
            starts[name] = clock[0]

        return started

    def hook(name: str) -> Hook:
        def ended(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            del layer, args, kwargs
            clock[0] += 1
            size = sum(t.nbytes for t in tensors(output)) / count if is_plain(output) else -1.0
            spans[name] = ModuleSpan(starts[name], clock[0], size)

        return ended

    names = [name for name, _ in model.named_modules() if name]
    handles = [model.get_submodule(name).register_forward_pre_hook(before(name)) for name in names]
    try:
        with listening(model, {name: hook(name) for name in names}):
            result = run(model, example)
    finally:
        for handle in handles:
            handle.remove()
    once = {name: span for name, span in spans.items() if calls[name] == 1}
    return once, [t.clone() for t in tensors(result)]


@contextlib.contextmanager
def replaying(model: nn.Module, outputs: dict[str, Any]) -> Generator[None]:
    """Modules that give what they gave, without running."""

    def giving(output: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: mapped(whole, output)

    layers = {name: model.get_submodule(name) for name in outputs}
    for name, layer in layers.items():
        layer.forward = giving(outputs[name])
    try:
        yield
    finally:
        for layer in layers.values():
            del layer.forward


def whole(value: Tensor) -> Tensor:
    """A copy that may be written to."""
    return value.clone(memory_format=torch.contiguous_format)


def blank(value: Tensor) -> Tensor:
    """NaN of a tensor's shape in the room of one number; numbers that cannot be NaN as they are."""
    return value.new_full((), torch.nan).expand(value.shape) if value.is_floating_point() else value.clone()


def mapped(function: Callable[[Tensor], Tensor], output: Any) -> Any:
    """The output with a function applied to its tensors."""
    if isinstance(output, Tensor):
        return function(output)
    return tuple(mapped(function, own) for own in output) if isinstance(output, tuple) else output


def is_plain(output: Any) -> bool:
    """Whether an output is a tensor, or a plain tuple of tensors and nothing."""
    if type(output) is tuple:
        return all(is_plain(own) for own in output)
    return output is None or type(output) is Tensor


def inside(name: str, names: set[str]) -> bool:
    """Whether a module lies in another one of these."""
    path = name.split(".")
    return any(".".join(path[:k]) in names for k in range(1, len(path)))


def digest_of(inputs: Any) -> int:
    """Of a batch: a loader may shuffle."""
    digest = 0
    for tensor in tensors(inputs):
        numbers = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        digest = zlib.crc32(numbers.numpy().tobytes(), digest)
    return digest
