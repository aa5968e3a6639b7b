"""Whether two models compute the same: on several inputs, in double precision where they support it."""

import math

import torch
from torch import Tensor, nn

from torchlift.channels.example_inputs import Example, as_type, changed, noise, other_sizes, outputs, precise

TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-4}


def same_function(model: nn.Module, other: nn.Module, example: Example) -> bool:
    """Whether two models (for evaluation) agree to 1e-6 of the largest output; where rounding in single
    precision leaves a doubt, double decides."""
    gap = output_difference(output_or_none(model, example), output_or_none(other, example))
    if gap <= TOLERANCE[torch.float64] or gap == float("inf"):
        return gap < float("inf")
    results = both(model, other, [example])
    return results is not None and output_difference(*results[:2]) <= TOLERANCE[results[2]]


def agree(model: nn.Module, other: nn.Module, example: Example, seen: tuple[Example, list[Tensor]]) -> bool:
    """Whether two models, both spent, agree to 1e-6 of the largest output: in the first model's own precision
    where the other was ``seen`` at work, (input, outputs); and in double precision on noise of another size.

    Where single precision leaves a doubt, double decides; where a model casts, single must do, to 1e-4.
    """
    there, theirs = seen
    own = next((p.dtype for p in model.parameters()), torch.float32)
    first = output_difference(output_or_none(model, as_type(there, own)), theirs)
    for dtype, tolerance in TOLERANCE.items():
        model, other = (precise(one, dtype, own=True) for one in (model, other))
        for inputs in other_sizes(changed(example, noise(1.0))):
            inputs = as_type(inputs, dtype)
            if (ours := output_or_none(model, inputs)) is None:
                continue
            if first > TOLERANCE[torch.float64]:
                first = output_difference(
                    *(output_or_none(one, as_type(there, dtype)) for one in (model, other))
                )
            return max(first, output_difference(ours, output_or_none(other, inputs))) <= tolerance
    return False


def output_or_none(model: nn.Module, example: Example) -> list[Tensor] | None:
    """What a model gives; None where it fails."""
    try:
        return outputs(model, [example])
    except Exception:  # a cut that a model's own code does not support may raise anything
        return None


def output_difference(ours: list[Tensor] | None, theirs: list[Tensor] | None) -> float:
    """The largest difference in parts of the largest output (or of 1); infinite where it is not a number."""
    if ours is None or theirs is None or [a.shape for a in ours] != [b.shape for b in theirs]:
        return float("inf")
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if a.numel()]
    distances = [distance(a, b) / max(1.0, float(a.abs().max())) for a, b in pairs]
    return float("inf") if any(map(math.isnan, distances)) else max(distances, default=0.0)


def difference(model: nn.Module, other: nn.Module, examples: list[Example]) -> float:
    """The largest difference of any output; infinite where shapes differ or the second model fails."""
    results = both(model, other, examples)
    if results is None or [a.shape for a in results[0]] != [b.shape for b in results[1]]:
        return float("inf")
    return max((distance(a, b) for a, b in zip(*results[:2], strict=True) if a.numel()), default=0.0)


def both(
    model: nn.Module, other: nn.Module, examples: list[Example]
) -> tuple[list[Tensor], list[Tensor], torch.dtype] | None:
    """The outputs of two models; in single precision where a model casts; None where the second fails."""
    for dtype in TOLERANCE:
        inputs = [as_type(e, dtype) for e in examples]
        try:
            ours = outputs(precise(model, dtype), inputs)
        except (RuntimeError, ValueError, IndexError, TypeError):
            continue
        try:
            theirs = outputs(precise(other, dtype), inputs)
        except Exception:  # a cut that the model's own code does not support may raise anything
            return None
        return ours, theirs, dtype
    return None


def distance(a: Tensor, b: Tensor) -> float:
    """max |a − b|; equal infinities and equal not-a-numbers do not count."""
    a, b = a.double(), b.double()
    differ = ~((a == b) | (a.isnan() & b.isnan()))
    return float((a - b)[differ].abs().max()) if bool(differ.any()) else 0.0
