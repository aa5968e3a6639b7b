"""Is a deep network at a point lifted from a shallow one, and how far around the data do they agree?"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.analyze.neurons import model_of
from torchlift.core.activity import axis, label, pieces, visit
from torchlift.core.affine import by_row, compose, rows, through
from torchlift.core.flow import Flow, Op, flow
from torchlift.core.loss import call, output
from torchlift.errors import DataError


@dataclasses.dataclass(frozen=True)
class Lifting:
    """The conditions of Definition 4.2 for one deep and one shallow network on data."""

    local: bool
    """All layers are those of the shallow network, but for runs of layers that stand for one."""
    linear: bool
    """In such a run every neuron stays on one sloping straight piece of its activation."""
    preserving: bool
    """Such a run multiplies to the layer it stands for (eq. 4.2)."""
    inserted: tuple[str, ...]
    """The layers of the runs."""
    bend: float
    """The largest change of a slope σ′ in a run: zero on a straight piece."""
    gap: float
    """The largest difference of outputs on the data."""

    def __bool__(self) -> bool:
        return self.local and self.linear and self.preserving and bool(self.inserted)


@dataclasses.dataclass
class Slopes:
    """The range of σ′ of each neuron over the data, and the offset of its line."""

    low: Tensor
    high: Tensor
    offset: Tensor


def is_lifted(deep: nn.Module, shallow: nn.Module, x: Any, tolerance: float | None = None) -> bool:
    """Whether ``deep`` is a lifted point of ``shallow`` on the inputs ``x``: local in layer, linear, preserving.

    Bai et al. (2024), Definition 4.2 (A.2 for residual layers), for one or several inserted layers. What holds
    on a set of inputs holds on each part of it (Proposition 4.4). See :func:`lifting` for the reasons.
    """
    return bool(lifting(deep, shallow, x, tolerance))


def lifting(deep: nn.Module, shallow: nn.Module, x: Any, tolerance: float | None = None) -> Lifting:
    """The three conditions one by one; ``tolerance`` is relative (1e-4 in float32, 1e-8 in float64)."""
    deep, shallow = model_of(deep), model_of(shallow)
    example = next(deep.parameters())
    allowed = tolerance or (1e-8 if example.dtype == torch.float64 else 1e-4)
    first = next(pieces(x, deep))
    slopes = straightness(deep, x)
    shape = flow(deep, first)
    small = [shallow.get_submodule(op.name) for op in flow(shallow, first).of("layer")]
    runs = aligned(deep, shape.of("layer"), small, slopes, shape, allowed)
    long = [(ops, layer) for ops, layer in runs or [] if len(ops) > 1]
    bends = [slopes[op.name] for ops, _ in long for op in ops[:-1] if op.name in slopes]
    bend = max((float((s.high - s.low).max()) for s in bends), default=0.0)
    sloping = all(bool((s.low.abs() > 1e-12).all()) for s in bends)
    kept = all(stands_for(run_affine(deep, ops, slopes, shape), layer, allowed) for ops, layer in long)
    return Lifting(
        local=runs is not None,
        linear=bend <= allowed and sloping,
        preserving=runs is not None and kept,
        inserted=tuple(op.name for ops, _ in long for op in ops),
        bend=bend,
        gap=gap(deep, shallow, x),
    )


def straightness(model: nn.Module, x: Any) -> dict[str, Slopes]:
    """The slopes of every neuron's activation over the data, by layer."""
    found: dict[str, Slopes] = {}

    def see(_: str, op: Op, z: Tensor, a: Tensor) -> None:
        assert op.bend is not None
        place = axis(op, model, z)
        with torch.enable_grad():
            at = z.detach().requires_grad_()
            slope = torch.autograd.grad(op.bend(at).sum(), at)[0]
        s = rows(slope, place).double()
        offset = (rows(a, place).double() - s * rows(z, place).double()).mean(0)
        old = found.get(label(op), Slopes(s.amin(0), s.amax(0), offset))
        found[label(op)] = Slopes(
            torch.minimum(old.low, s.amin(0)), torch.maximum(old.high, s.amax(0)), offset
        )

    visit(model, x, see)
    return found


Run = tuple[Sequence[Op], nn.Module]


def aligned(
    deep: nn.Module,
    ops: list[Op],
    small: list[nn.Module],
    slopes: dict[str, Slopes],
    shape: Flow,
    allowed: float,
) -> list[Run] | None:
    """Each layer of the shallow network with the run of deep layers that stands for it; None if none fits.

    The shortest run that multiplies to the layer is taken; where none does, one that has its shape.
    """
    if not small:
        return [] if not ops else None
    layer, rest = small[0], small[1:]
    longest = len(ops) - len(rest)
    runs = [ops[:length] for length in range(1, longest + 1)]
    right = [r for r in runs if stands_for(run_affine(deep, r, slopes, shape), layer, allowed)]
    alike = [r for r in runs if len(r) > 1 and ends_alike(deep, r, layer) and r not in right]
    for run in [*right, *alike]:
        others = aligned(deep, ops[len(run) :], rest, slopes, shape, allowed)
        if others is not None:
            return [(run, layer), *others]
    return None


def ends_alike(deep: nn.Module, ops: Sequence[Op], layer: nn.Module) -> bool:
    """Whether a run has as many inputs and outputs as the layer."""
    first, last = (deep.get_submodule(op.name).get_parameter("weight") for op in (ops[0], ops[-1]))
    weight = layer.get_parameter("weight")
    return first.shape[1] == weight.shape[1] and last.shape[0] == weight.shape[0]


def run_affine(
    deep: nn.Module, ops: Sequence[Op], slopes: dict[str, Slopes], shape: Flow
) -> tuple[Tensor, Tensor] | None:
    """Weight and bias of a run of layers with their activations replaced by their lines."""
    weight, bias = affine(deep.get_submodule(ops[0].name))
    for before, op in zip(ops, ops[1:], strict=False):
        line = slopes.get(before.name)
        second, shift = affine(deep.get_submodule(op.name))
        if line is None or second.ndim != weight.ndim or second.shape[1] != weight.shape[0]:
            return None
        middle = (line.low + line.high) / 2
        weight, bias = by_row(middle, weight), middle * bias + line.offset
        if skips(shape, before, op):
            if weight.shape[0] != weight.shape[1] or weight.shape[2:].numel() > 1:
                return None
            weight = weight + torch.eye(len(weight)).to(weight).view_as(weight)
        weight, bias = compose(second, weight), through(second, bias) + shift
    return weight, bias


def skips(shape: Flow, before: Op, op: Op) -> bool:
    """Whether a layer also takes what the layer before it took: a residual connection around that one."""
    maker = shape.maker(op.inputs[0])
    return maker is not None and maker.kind == "add" and before.inputs[0] in maker.inputs


def affine(layer: nn.Module) -> tuple[Tensor, Tensor]:
    """Weight and bias in float64."""
    weight = layer.get_parameter("weight").detach().double()
    bias = layer.bias
    return weight, bias.detach().double() if isinstance(bias, Tensor) else weight.new_zeros(len(weight))


def stands_for(found: tuple[Tensor, Tensor] | None, layer: nn.Module, allowed: float) -> bool:
    """Whether a run's weight and bias are the layer's."""
    if found is None:
        return False
    return all(
        got.shape == want.shape
        and float((got - want).abs().max()) <= allowed * max(1.0, float(want.abs().max()))
        for got, want in zip(found, affine(layer), strict=True)
    )


def gap(deep: nn.Module, shallow: nn.Module, x: Any) -> float:
    """The largest difference of the outputs on the data."""
    worst = 0.0
    with torch.no_grad():
        for part in pieces(x, deep):
            difference = output(call(deep, part)) - output(call(shallow, part))
            worst = max(worst, float(difference.abs().max()))
    return worst


@torch.no_grad()
def radius(
    deep: nn.Module,
    shallow: nn.Module,
    x: Tensor,
    *,
    tolerance: float = 1e-5,
    directions: int = 32,
    largest: float = 100.0,
    steps: int = 30,
    seed: int = 0,
) -> Tensor:
    """How far from each input the two networks still agree: the neighbourhood of Proposition A.4, measured.

    Along ``directions`` random lines through every input, outputs are compared at distances from ``largest``
    · 10⁻⁶ up, in ``steps`` equal ratios; the radius is the last distance before the first at which they differ by
    more than ``tolerance`` (relative to the largest output). A measurement, not a bound: a lucky draw of
    directions can miss a nearer change.
    """
    if not isinstance(x, Tensor):
        raise DataError(f"radius moves inputs along lines: x must be a tensor, got {type(x).__name__}.")
    deep, shallow = model_of(deep).eval(), model_of(shallow).eval()
    x = x.to(next(deep.parameters()))
    generator = torch.Generator().manual_seed(seed)
    distances = largest * torch.logspace(-6, 0, steps, dtype=torch.float64)
    found = torch.zeros(len(x), dtype=torch.float64)
    for number, point in enumerate(x):
        lines = torch.randn(directions, point.numel(), generator=generator, dtype=torch.float64)
        lines = (lines / lines.norm(dim=1, keepdim=True)).to(x).view(directions, *point.shape)
        for distance in distances.tolist():
            moved = point + distance * lines
            want = output(call(shallow, moved))
            off = float((output(call(deep, moved)) - want).abs().max())
            if off > tolerance * max(1.0, float(want.abs().max())):
                break
            found[number] = distance
    return found
