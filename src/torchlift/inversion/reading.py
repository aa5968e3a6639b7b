"""A network as a chain u_l = σ_l(A_l u_{l−1} + b_l), read from a module and compared with it."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from torchlift.convex.activations import Activation, Channelwise, Linear, is_activation, recognize
from torchlift.convex.operators import Affine, Identity, Mapped, Reshape, affine
from torchlift.convex.operators.modules import SampleShape
from torchlift.flow.graph import MAXIMA, Graph, ReadError, Step, read_graph
from torchlift.inversion.residual import MonotoneResidual
from torchlift.inversion.result import InversionError


@dataclasses.dataclass(frozen=True, eq=False)
class AffineStage:
    """One affine map and the activation after it."""

    name: str
    affine: Affine
    activation: Activation

    def __call__(self, u: Tensor) -> Tensor:
        """σ(A u + b)."""
        return self.activation(self.affine(u))


def leaf(module: nn.Module) -> bool:
    """Whether a module is one operation, whatever is inside it."""
    return isinstance(module, MonotoneResidual) or is_activation(module)


def affine_graph(model: nn.Module) -> Graph:
    """The model's operations; raises for one that is neither affine nor an activation, by name."""
    try:
        return read_graph(model, leaf, "tl.invert")
    except ReadError as error:
        said = str(error)
        hint = "" if "training mode" in said else "; method='adam' and 'lbfgs' need no more than gradients"
        raise InversionError(f"{said}{hint}") from None


def activation_of(step: Step) -> Activation | None:
    """The activation that a step computes, on the dimension torch has it on; None if it is affine."""
    activation = recognize(step.module)
    if activation is None:
        return None
    if not math.isfinite(activation.lipschitz):
        raise InversionError(
            f"tl.invert: {step.name!r} ({activation}) jumps and cannot be run backward; use hard_tanh"
        )
    channels = isinstance(step.module, nn.Softmax) and step.module.dim == 1
    return Channelwise(activation) if channels else activation


def first_break(graph: Graph) -> Step | None:
    """The first step because of which the network is not a chain: a skip over an activation, or a maximum.

    Sums that stay between two activations are part of one affine map.
    """
    state, source = 0, {0: 0}
    for number, step in enumerate(graph.steps, 1):
        origins = {source[i] for i in step.inputs}
        if origins != {state} or isinstance(step.module, MAXIMA):
            return step
        state = number if activation_of(step) is not None else state
        source[number] = state
    return None


def read_stages(graph: Graph, shape: SampleShape, like: Tensor) -> list[AffineStage]:
    """The stages for samples of ``shape``, or an error that names the module in the way."""
    stages: list[AffineStage] = []
    waiting, start, size = list[Step](), 0, shape
    for number, step in enumerate(graph.steps, 1):
        activation = activation_of(step)
        if activation is None:
            waiting.append(step)
            continue
        stages.append(AffineStage(step.name, segment(waiting, start, size, like), activation))
        size = tuple(stages[-1].affine.offset.shape)
        _check_vector(step.name, activation, size)
        waiting, start = [], number
    if waiting or not stages:
        name = waiting[-1].name if waiting else ""
        stages.append(AffineStage(name, segment(waiting, start, size, like), Linear()))
    return stages


def segment(steps: Sequence[Step], start: int, shape: SampleShape, like: Tensor) -> Affine:
    """The affine map of all steps between two activations; value ``start`` is its input."""
    whole = Affine(Identity(), like.new_zeros(shape), shape)
    if start == 0 and steps and isinstance(steps[0].module, nn.Linear) and len(shape) > 1:
        flat = (math.prod(shape),)
        whole = Affine(Reshape(shape, flat), like.new_zeros(flat), shape)
    if all(step.inputs == (start + k,) for k, step in enumerate(steps)):
        for step in steps:
            size = tuple(whole.offset.shape)
            whole = _tried(step, size, lambda step=step, size=size: affine(step.module, size, like)).after(
                whole
            )
        return whole

    def run(x: Tensor) -> Tensor:
        values = {start: x}
        for number, step in enumerate(steps, start + 1):
            values[number] = step.module(*(values[i] for i in step.inputs))
        return values[start + len(steps)]

    return _tried(steps[-1], shape, lambda: Mapped(run, shape, like).affine())


def _tried(step: Step, size: SampleShape, work: Callable[[], Affine | None]) -> Affine:
    kind = type(step.module).__name__
    try:
        affine = work()
    except (RuntimeError, ValueError, IndexError) as error:
        reason = str(error).splitlines()[0]
        raise InversionError(
            f"tl.invert: {step.name!r} ({kind}) does not take samples of {size}: {reason}"
        ) from None
    if affine is None:
        raise InversionError(f"tl.invert: {step.name!r} ({kind}) cannot be run backward: it is not affine")
    return affine


def _check_vector(name: str, activation: Activation, size: SampleShape) -> None:
    if activation.vector and not isinstance(activation, Channelwise) and len(size) != 1:
        raise InversionError(
            f"tl.invert: {name!r} ({activation}) acts on vectors, but gets samples of {size}"
        )


def forward_states(stages: Sequence[AffineStage], u: Tensor) -> list[Tensor]:
    """u₁, …, u_L of the forward pass."""
    states: list[Tensor] = []
    for stage in stages:
        u = stage(u)
        states.append(u)
    return states


def check_same_function(
    model: nn.Module, network: Callable[[Tensor], Tensor], shape: SampleShape, like: Tensor, flat: bool
) -> None:
    """Raise if what was read does not compute what the model computes."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, *shape, generator=generator, dtype=torch.float64).to(like)
    with torch.no_grad():
        wanted, output = model(x.flatten(1) if flat else x), network(x)
    rounding = 1e4 * torch.finfo(like.dtype).eps * (1 + float(wanted.abs().max()))
    if output.shape != wanted.shape or float((output - wanted).abs().max()) > rounding:
        raise InversionError(
            f"tl.invert: {type(model).__name__} does something besides its modules (hooks, own forward): "
            "it was read as another network; use method='adam' or 'lbfgs'"
        )
