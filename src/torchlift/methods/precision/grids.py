"""The grids of SMOL: p bits are the odd multiples of 2^(1−p) below 2; 0 bits are 0."""

import math
from functools import partial
from typing import Literal, overload

import torch
from torch import Tensor
from torch.nn.functional import softplus

from torchlift.core import Stored
from torchlift.core.stored import spread_step
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


def scaled_grid(w: Tensor, p: Bits, scale: Tensor | float) -> Tensor:
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
    bits = torch.floor(p + 1e-4) if rounding == "floor" else torch.round(p)
    bits = bits.clamp(1, MOST).to(torch.int16)
    if levels is None:
        return bits
    steps = torch.tensor(sorted(levels), device=p.device)
    if rounding == "round":
        return steps[(p[..., None] - steps).abs().argmin(-1)].to(torch.int16)
    position = torch.searchsorted(steps.to(bits.dtype), bits, right=True) - 1
    return steps[position.clamp(0)].to(torch.int16)


def most_bits(dtype: torch.dtype) -> int:
    """The most bits whose levels can be told from products with a step: one fewer than the number type's."""
    return min(MOST, -round(math.log2(torch.finfo(dtype).eps)))


def units_of(bits: Tensor) -> tuple[Tensor, Tensor, int]:
    """(u, last, P) of grids of p bits as whole numbers: levels are the odd multiples of u = 2^(P−p) within
    ±last = ±(2^P − u), P the most bits there are; both are 0 for no bits."""
    most = max(1, int(bits.max())) if bits.numel() else 1
    unit = torch.where(bits > 0, torch.ldexp(torch.ones_like(bits, dtype=torch.float64), most - bits), 0.0)
    return unit, torch.where(unit > 0, 2.0**most - unit, 0.0), most


def odd_levels(v: Tensor, unit: Tensor, last: Tensor, step: Tensor) -> Tensor:
    """The odd multiple of u nearest to v / step within ±last."""
    pitch = unit * spread_step(step, v.shape)
    whole = (2 * torch.floor(v * torch.where(pitch != 0, 0.5 / pitch, 0.0)) + 1) * unit
    return torch.minimum(torch.maximum(whole, -last), last)


def as_levels(w: Tensor, p: Bits, scale: Tensor | float) -> Stored:
    """c Q(w/c, p) as step · levels: step = 2^(1−P) c with P the most bits there are, levels 2^(P−1) Q."""
    p = torch.as_tensor(p, device=w.device)
    most = max(1, int(p.max())) if p.numel() else 1
    levels = (to_grid(w / scale, p).double() * 2.0 ** (most - 1)).round().to(torch.int32)
    return Stored(levels, torch.as_tensor(scale, dtype=w.dtype, device=w.device) * 2.0 ** (1 - most))


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
    return max(2 * float(alive.square().mean().sqrt()), tail / 2)
