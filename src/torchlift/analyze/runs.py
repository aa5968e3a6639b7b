"""Layers of a deep network compared with those of a shallow one: runs of layers that stand for one layer."""

import dataclasses
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.flow.activity import activation_label, axis, visit
from torchlift.flow.affine import by_row, composed_weight, feature_rows, through, weight_and_bias
from torchlift.flow.ops import Flow, Op


@dataclasses.dataclass
class Slopes:
    """The range of σ′ of each neuron over the data, and the offset of its line."""

    low: Tensor
    high: Tensor
    offset: Tensor


def straightness(model: nn.Module, x: Any) -> dict[str, Slopes]:
    """The slopes of every neuron's activation over the data, by layer."""
    slopes: dict[str, Slopes] = {}

    def see(_: str, op: Op, z: Tensor, a: Tensor) -> None:
        assert op.bend is not None
        dim = axis(op, model, z)
        with torch.enable_grad():
            at = z.detach().requires_grad_()
            slope = torch.autograd.grad(op.bend(at).sum(), at)[0]
        s = feature_rows(slope, dim).double()
        offset = (feature_rows(a, dim).double() - s * feature_rows(z, dim).double()).mean(0)
        old = slopes.get(activation_label(op), Slopes(s.amin(0), s.amax(0), offset))
        slopes[activation_label(op)] = Slopes(
            torch.minimum(old.low, s.amin(0)), torch.maximum(old.high, s.amax(0)), offset
        )

    visit(model, x, see)
    return slopes


RecordedRun = tuple[Sequence[Op], nn.Module]


def aligned_layers(
    deep: nn.Module,
    ops: list[Op],
    small: list[nn.Module],
    slopes: dict[str, Slopes],
    shape: Flow,
    allowed: float,
) -> list[RecordedRun] | None:
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
        others = aligned_layers(deep, ops[len(run) :], rest, slopes, shape, allowed)
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
    """Weight and bias of a run of layers with their activations replaced by their lines.

    A residual layer adds what it was given: σ(W u + b) + u with u an affine map of the run's input too.
    """
    weight, bias = weight_and_bias(deep.get_submodule(ops[0].name))
    entering: tuple[Tensor, Tensor] | None = None  # u of the layer at hand; the run's input itself at first
    for before, op in pairwise(ops):
        line = slopes.get(before.name)
        second, shift = weight_and_bias(deep.get_submodule(op.name))
        if line is None or second.ndim != weight.ndim or second.shape[1] != weight.shape[0]:
            return None
        middle = (line.low + line.high) / 2
        weight, bias = by_row(middle, weight), middle * bias + line.offset
        if skips(shape, before, op):
            around, constant = identity_weight(weight) if entering is None else entering
            if around.shape != weight.shape:
                return None
            weight, bias = weight + around, bias + constant
        entering = weight, bias
        weight, bias = composed_weight(second, weight), through(second, bias) + shift
    return weight, bias


def identity_weight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """x ↦ x as a weight of the same kind: a matrix, or a kernel of one position."""
    size = weight.shape[1]
    return torch.eye(size).to(weight).view(size, size, *[1] * (weight.ndim - 2)), weight.new_zeros(size)


def skips(shape: Flow, before: Op, op: Op) -> bool:
    """Whether a layer also takes what the layer before it took: a residual connection around that one."""
    maker = shape.maker(op.inputs[0])
    return maker is not None and maker.kind == "add" and before.inputs[0] in maker.inputs


def stands_for(pair: tuple[Tensor, Tensor] | None, layer: nn.Module, allowed: float) -> bool:
    """Whether a run's weight and bias are the layer's."""
    if pair is None:
        return False
    return all(
        achieved.shape == want.shape
        and float((achieved - want).abs().max()) <= allowed * max(1.0, float(want.abs().max()))
        for achieved, want in zip(pair, weight_and_bias(layer), strict=True)
    )
