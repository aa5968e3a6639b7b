"""The grids of SMOL: p bits are the odd multiples of 2^(1−p) below 2; 0 bits are 0."""

import math
from functools import partial
from typing import Literal, overload

import torch
from torch import Tensor
from torch.nn.functional import softplus

from torchlift.errors import TorchliftError

ADAM = partial(torch.optim.Adam, lr=1e-3)
"""The source's optimizer of s, whatever trains the weights."""

MOST = 16
"""More bits are full precision by another name; a palette of theirs has 65,536 values."""

Bits = Tensor | int | float


def half_step(p: Tensor) -> Tensor:
    """2^(1−p), exactly (powers by rounding would be off by an ulp)."""
    return torch.ldexp(torch.ones_like(p, dtype=torch.float64), 1 - p.to(torch.float64))


def to_grid(w: Tensor, p: Bits) -> Tensor:
    """Q(w, p): the nearest odd multiple of 2^(1−p) within ±(2 − 2^(1−p)), entry by entry; 0 for p = 0.

    Thesis, eq. 5.5 for the bit values 2^(1−j): sums of ±2^(1−j), j = 1, …, p.
    """
    p = torch.as_tensor(p, device=w.device)
    if p.numel() and int(p.min()) < 0:
        raise TorchliftError(f"a precision is a whole number of bits, 0 or more; got {int(p.min())}.")
    half = half_step(p).to(w.dtype)
    value = (2 * torch.floor(w / (2 * half)) + 1) * half
    return torch.where(p > 0, value.clamp(half - 2, 2 - half), 0.0).to(w.dtype)


def on_grid(w: Tensor, p: Bits, scale: Tensor | float) -> Tensor:
    """c Q(w/c, p)."""
    return scale * to_grid(w / scale, p)


@overload
def bits(s: Tensor) -> Tensor: ...
@overload
def bits(s: float) -> float: ...
def bits(s: Tensor | float) -> Tensor | float:
    """p(s) = 1 + log₂(1 + e^(−s)), from 2^(1−p) = σ(s)."""
    if isinstance(s, Tensor):
        return 1 + softplus(-s) / math.log(2)
    return float(bits(torch.tensor(float(s), dtype=torch.float64)))


@overload
def logit(p: Tensor) -> Tensor: ...
@overload
def logit(p: float) -> float: ...
def logit(p: Tensor | float) -> Tensor | float:
    """s(p) = −ln(2^(p−1) − 1), the inverse of :func:`bits`; p ≤ 1 has none."""
    if not isinstance(p, Tensor):
        return float(logit(torch.tensor(float(p), dtype=torch.float64)))
    if not bool((p > 1).all()):
        raise TorchliftError(
            f"a learned precision starts above 1 bit (at 1, s is infinite); got {float(p.min()):g}."
        )
    above = (p - 1) * math.log(2)
    return -(above + torch.log1p(-torch.exp(-above)))


def allocate(w: Tensor, p: Bits) -> Tensor:
    """p, or 0 bits where zero is as near as the grid: |w| ≤ |w − Q(w, p)|, that is |w| ≤ 2^(−p).

    Zero-precision allocation (thesis §5.2.4; its algorithm box prints <).
    """
    p = torch.as_tensor(p, device=w.device)
    return torch.where(w.abs() <= 0.5 * half_step(p).to(w.dtype), torch.zeros_like(p), p)


def integer(p: Tensor, rounding: Literal["floor", "round"], levels: tuple[int, ...] | None = None) -> Tensor:
    """Whole bits, at least one: the floor (of 8 less a rounding error it is 8) or the nearest; of ``levels``
    the largest within it, or the nearest."""
    found = torch.floor(p + 1e-4) if rounding == "floor" else torch.round(p)
    found = found.clamp(1, MOST).to(torch.int16)
    if levels is None:
        return found
    steps = torch.tensor(sorted(levels), device=p.device)
    if rounding == "round":
        return steps[(p[..., None] - steps).abs().argmin(-1)].to(torch.int16)
    place = torch.searchsorted(steps.to(found.dtype), found, right=True) - 1
    return steps[place.clamp(0)].to(torch.int16)


def significant(dtype: torch.dtype) -> int:
    """How many significant bits a scale has: few, so that its products with the grid are exact."""
    return 8 if dtype in (torch.float32, torch.float64) else 1


def most_bits(dtype: torch.dtype) -> int:
    """The most bits of a weight whose products with a scale are exact."""
    mantissa = 1 - round(math.log2(torch.finfo(dtype).eps))
    return min(MOST, mantissa - significant(dtype))


def rounded_up(value: float, digits: int) -> float:
    """The least number of so many significant bits that is not below the value."""
    mantissa, exponent = math.frexp(value)
    return math.ldexp(math.ceil(mantissa * 2**digits), exponent - digits)


def rounded(values: Tensor, digits: int) -> Tensor:
    """The nearest numbers of so many significant bits."""
    mantissa, exponent = torch.frexp(values)
    return torch.ldexp(torch.round(mantissa * 2**digits) * 2.0**-digits, exponent)


def auto_scale(w: Tensor) -> float:
    """c = 2 rms(w ≠ 0), or half of |w| at the 999th permille where that is more; 1 for a weight of zeros.

    At twice the deviation one bit is a ternary grid {−2, 0, 2} deviations and two bits {0, ±1, ±3}: near the
    best uniform steps for a bell-shaped weight that is entropy-coded afterwards. A larger scale, up to the
    largest weight, would spend a bit or two of every weight on a few.
    """
    alive = w[w != 0].double()
    if not alive.numel():
        return 1.0
    tail = float(alive.abs().sort().values[math.ceil(0.999 * (alive.numel() - 1))])
    need = max(2 * float(alive.square().mean().sqrt()), tail / 2)
    return rounded_up(need, significant(w.dtype))
