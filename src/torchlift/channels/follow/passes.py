"""Running a model under a follower, several times, with several inputs and with weights drawn anew."""

import contextlib
import dataclasses
import warnings
from collections.abc import Generator

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from torchlift.channels.example_inputs import Example, call, tensors
from torchlift.channels.follow import convolutions as convolving
from torchlift.channels.follow import elementwise as mixing
from torchlift.channels.follow import movement as moving
from torchlift.channels.follow import norms as norming
from torchlift.channels.follow import products as contracting
from torchlift.channels.follow.channel_values import Still, Watch
from torchlift.channels.follow.follower import Follower
from torchlift.channels.follow.labels import Labels, compressed, varying
from torchlift.channels.follow.module_hooks import hooked
from torchlift.channels.follow.reader_inputs import Glance
from torchlift.channels.follow.redrawn_weights import redrawn
from torchlift.channels.follow.rules import Known, Norm, Shape

_ = (contracting, convolving, mixing, moving, norming)  # imported for their rules

OUTPUT = "the model's output has these channels"


@dataclasses.dataclass(frozen=True, eq=False)
class Trace:
    """What was learnt about a model's channels."""

    labels: Labels
    watch: Watch
    still: Still
    norms: tuple[Norm, ...]
    shapes: tuple[Shape, ...]
    samples: int
    """How many samples the multiplications were counted for."""


def trace(
    model: nn.Module,
    examples: list[Example],
    generic: list[Example],
    tolerance: float,
    *,
    values: bool = True,
) -> Trace:
    """Follow a model (in evaluation mode, in its own number type) through the examples.

    Weights drawn anew, zeros kept, tell channels that are constant because of zeros from those that happen
    to be so at these weights, such as an activation that never fires; they run on the ``generic`` examples,
    one set of weights on each. Couplings come from the first and the last example. Without ``values`` nothing
    is learnt about constants.
    """
    labels = Labels()
    cores = {name: labels.add(name, tensor) for name, tensor in held(model) if tensor.is_floating_point()}
    recurrent(model, labels)
    watches = [Watch(labels.size, values=values)]
    first: Follower | None = None
    spread: list[Tensor] = []
    for number, example in enumerate(examples):
        f = run(model, example, labels, cores, watches[0], light=0 < number < len(examples) - 1)
        first, spread = first or f, spread + f.spread
        watches[0].counting = False
    generator = torch.Generator().manual_seed(0)
    for example in generic:
        watches.append(Watch(labels.size))
        run(redrawn(model, generator), example, labels, cores, watches[-1], light=True)
    straighten(labels, spread)
    assert first is not None
    samples = next((len(x) for x in tensors(examples[0]) if x.ndim), 1)
    still = Still.of(watches, tolerance)
    return Trace(labels, watches[0], still, tuple(first.norms), tuple(first.shapes), samples)


def run(
    model: nn.Module,
    example: Example,
    labels: Labels,
    cores: dict[str, list[Tensor]],
    watch: Watch,
    *,
    light: bool = False,
) -> Follower:
    """One run, followed or only glanced at."""
    f = (Glance if light else Follower)(model, labels, watch)
    for name, tensor in held(model):
        f.known[id(tensor)] = Known(tensor, cores.get(name, []), pure=True)
    with hooked(f), plainly(), f:
        out = call(model, example)
    for tensor in [] if light else tensors(out):
        for core in f.look(tensor).cores:
            labels.freeze(core, OUTPUT)
    return f


def held(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Parameters and buffers by name."""
    return [*model.named_parameters(), *model.named_buffers()]


@contextlib.contextmanager
def plainly() -> Generator[None]:
    """Without gradients and without kernels that do many operations at once."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with warnings.catch_warnings(), torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
            warnings.simplefilter("ignore")
            with torch.backends.mkldnn.flags(enabled=False):
                yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def recurrent(model: nn.Module, labels: Labels) -> None:
    """All layers and directions of a torch RNN have one size: unit j of one goes with those of the others."""
    places = {(place.name, place.dim): place for place in labels.places}
    for name, part in model.named_modules():
        if isinstance(part, nn.RNNBase):
            prefix = f"{name}." if name else ""
            units = [
                places[n, 1].labels
                for key, _ in part.named_parameters()
                if key.startswith("weight_hh") and ((n := f"{prefix}{key}"), 1) in places
            ]
            for other in units[1:]:
                labels.unite(units[0], other)
            if part.proj_size:
                for unit in units:
                    labels.freeze(unit, "an LSTM with projections")


def straighten(labels: Labels, spread: list[Tensor]) -> None:
    """No tensor may become ragged: what differs along two dimensions is united along the inner one."""
    before = None
    while before is None or not torch.equal(before, labels.parent):
        before = labels.parent.clone()
        for core in spread:
            own = varying(compressed(labels.roots(core)))
            if len(own) > 1:
                labels.along(core, own - {min(own)})
