"""Whether two models compute the same: on several inputs, in double precision where they bear it."""

import torch
from torch import Tensor, nn

from torchlift.deploy.probing import Example, as_type, changed, noise, outputs, precise, shaped

TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-4}


def same(model: nn.Module, other: nn.Module, examples: list[Example], *, own: bool = False) -> bool:
    """Whether two models agree on the examples to 1e-6 of the largest output; ``own``: the first is spent."""
    found = both(model, other, examples, own=own)
    if found is None:
        return False
    ours, theirs, dtype = found
    return len(ours) == len(theirs) and all(
        a.shape == b.shape
        and (a.numel() == 0 or distance(a, b) <= TOLERANCE[dtype] * max(1.0, float(a.abs().max())))
        for a, b in zip(ours, theirs, strict=True)
    )


def agree(model: nn.Module, other: nn.Module, example: Example) -> bool:
    """Whether two models, both spent, agree to 1e-6 of the largest output: in the first model's own precision
    on three samples of another size, and in double precision on one sample of the given size, all noise.

    Where single precision leaves a doubt, double decides; where a model casts, single must do, to 1e-4.
    """

    def apart(samples: int, factors: tuple[float, ...], scale: float, dtype: torch.dtype) -> float | None:
        pair = precise(model, dtype, own=True), precise(other, dtype, own=True)
        given = (as_type(changed(e, noise(scale)), dtype) for e in shaped(example, samples, factors))
        return next((found for e in given if (found := gap(*pair, e)) is not None), None)

    several = 3, (0.5, 1.5, 2.0), 10.0
    first = apart(*several, next((p.dtype for p in model.parameters()), torch.float32))
    for dtype, tolerance in TOLERANCE.items():
        second = apart(1, (), 1.0, dtype)
        if second is not None:
            doubt = first is None or first > TOLERANCE[torch.float64]
            first = apart(*several, dtype) if doubt else first
            return first is not None and max(first, second) <= tolerance
    return False


def gap(model: nn.Module, other: nn.Module, example: Example) -> float | None:
    """The largest difference in parts of the largest output (or of 1); None where the first model fails."""
    try:
        ours = outputs(model, [example])
    except (RuntimeError, ValueError, IndexError, TypeError):
        return None
    try:
        theirs = outputs(other, [example])
    except Exception:  # a cut that the model's own code does not bear may raise anything
        return float("inf")
    if [a.shape for a in ours] != [b.shape for b in theirs]:
        return float("inf")
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if a.numel()]
    return max((distance(a, b) / max(1.0, float(a.abs().max())) for a, b in pairs), default=0.0)


def difference(model: nn.Module, other: nn.Module, examples: list[Example]) -> float:
    """The largest difference of any output; infinite where shapes differ or the second model fails."""
    found = both(model, other, examples)
    if found is None or [a.shape for a in found[0]] != [b.shape for b in found[1]]:
        return float("inf")
    return max((distance(a, b) for a, b in zip(*found[:2], strict=True) if a.numel()), default=0.0)


def both(
    model: nn.Module, other: nn.Module, examples: list[Example], *, own: bool = False
) -> tuple[list[Tensor], list[Tensor], torch.dtype] | None:
    """The outputs of two models; in single precision where a model casts; None where the second fails."""
    for dtype in TOLERANCE:
        given = [as_type(e, dtype) for e in examples]
        try:
            ours = outputs(precise(model, dtype, own=own), given)
        except (RuntimeError, ValueError, IndexError, TypeError):
            continue
        try:
            theirs = outputs(precise(other, dtype), given)
        except Exception:  # a cut that the model's own code does not bear may raise anything
            return None
        return ours, theirs, dtype
    return None


def distance(a: Tensor, b: Tensor) -> float:
    """max |a − b|; equal infinities and equal not-a-numbers do not count."""
    a, b = a.double(), b.double()
    differ = ~((a == b) | (a.isnan() & b.isnan()))
    return float((a - b)[differ].abs().max()) if bool(differ.any()) else 0.0
