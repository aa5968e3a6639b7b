"""Is a deep network at a point lifted from a shallow one?"""

import dataclasses
from typing import Any

import torch
from torch import nn

from torchlift.analyze.neurons import model_of
from torchlift.analyze.runs import aligned_layers, run_affine, stands_for, straightness
from torchlift.flow.activity import input_pieces
from torchlift.flow.trace import flow
from torchlift.loss import call, output


@dataclasses.dataclass(frozen=True)
class LiftingConditions:
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


def is_lifted(deep: nn.Module, shallow: nn.Module, x: Any, tolerance: float | None = None) -> bool:
    """Whether ``deep`` is a lifted point of ``shallow`` on the inputs ``x``.

    Local in layer, linear, preserving: Bai et al. (2024), Definition 4.2 (A.2 for residual layers), for one
    or several inserted layers. What holds on a set of inputs holds on each part of it
    (Proposition 4.4). See :func:`lifting` for the reasons.
    """
    return bool(lifting(deep, shallow, x, tolerance))


def lifting(deep: nn.Module, shallow: nn.Module, x: Any, tolerance: float | None = None) -> LiftingConditions:
    """The three conditions one by one; ``tolerance`` is relative (1e-4 in float32, 1e-8 in float64)."""
    deep, shallow = model_of(deep), model_of(shallow)
    example = next(deep.parameters())
    allowed = tolerance or (1e-8 if example.dtype == torch.float64 else 1e-4)
    first = next(input_pieces(x, deep))
    slopes = straightness(deep, x)
    shape = flow(deep, first)
    small = [shallow.get_submodule(op.name) for op in flow(shallow, first).of("layer")]
    runs = aligned_layers(deep, shape.of("layer"), small, slopes, shape, allowed)
    long = [(ops, layer) for ops, layer in runs or [] if len(ops) > 1]
    bends = [slopes[op.name] for ops, _ in long for op in ops[:-1] if op.name in slopes]
    bend = max((float((s.high - s.low).max()) for s in bends), default=0.0)
    sloping = all(bool((s.low.abs() > 1e-12).all()) for s in bends)
    kept = all(stands_for(run_affine(deep, ops, slopes, shape), layer, allowed) for ops, layer in long)
    return LiftingConditions(
        local=runs is not None,
        linear=bend <= allowed and sloping,
        preserving=runs is not None and kept,
        inserted=tuple(op.name for ops, _ in long for op in ops),
        bend=bend,
        gap=largest_gap(deep, shallow, x),
    )


def largest_gap(deep: nn.Module, shallow: nn.Module, x: Any) -> float:
    """The largest difference of the outputs on the data."""
    worst = 0.0
    with torch.no_grad():
        for piece in input_pieces(x, deep):
            difference = output(call(deep, piece)) - output(call(shallow, piece))
            worst = max(worst, float(difference.abs().max()))
    return worst
