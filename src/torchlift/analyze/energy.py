"""What multiplications cost in low precision: the energy model of SMOL's section 5.4.4."""

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from torchlift.core import stored
from torchlift.errors import TorchliftError

POWER = {0: 0.0, 1: 1.0, 2: 2.41, 3: 3.83}
LATENCY = {0: 0.0, 1: 1.0, 2: 1.91, 3: 2.10}


@dataclasses.dataclass(frozen=True)
class Arithmetic:
    """Power, latency and their product, per multiplication, in units of a 1-bit weight's."""

    power: float
    latency: float

    @property
    def energy(self) -> float:
        """Power times latency."""
        return self.power * self.latency

    def relative_to(self, other: "Arithmetic") -> "Arithmetic":
        """These costs over those of another allocation."""
        return Arithmetic(self.power / other.power, self.latency / other.latency)


def arithmetic(bits: nn.Module | Tensor | Mapping[int, float], *, overhead: float = 0.0) -> Arithmetic:
    """Σ_p share(p) · cost(p) over the precisions of weights that meet 4-bit activations.

    ``bits``: the precision of every weight, {precision: how many (or what share) have it}, or a model with
    weights on grids (``tl.stored``).

    Assumptions, those of the source (thesis §5.4.4, after Brown and Vranesic 2009): multipliers made of
    ripple-carry adders, power 1, 2.41, 3.83 and latency 1, 1.91, 2.10 for 1, 2, 3 bits; accumulation costs
    the same at any precision and is left out. A weight of zero bits is skipped. ``overhead`` is that of
    controlling mixed precisions in hardware (Park et al. 2018: 0.25), on both power and latency. Ours, beyond
    3 bits: one more adder adds what the third bit did, 1.42 in power and 0.19 in latency.
    """
    shares = precision_counts(bits)
    total = sum(shares.values())
    if not total > 0 or any(p < 0 or p != int(p) or n < 0 for p, n in shares.items()):
        raise TorchliftError("bits are whole numbers from 0, with positive shares, of one weight or more.")
    power = sum(n * extended(POWER, p) for p, n in shares.items()) / total
    latency = sum(n * extended(LATENCY, p) for p, n in shares.items()) / total
    return Arithmetic((1 + overhead) * power, (1 + overhead) * latency)


def precision_counts(bits: nn.Module | Tensor | Mapping[int, float]) -> dict[int, float]:
    """How many weights have each precision."""
    if isinstance(bits, nn.Module):
        precisions = [r.precision.flatten() for r in stored(bits).values() if r.precision is not None]
        if not precisions:
            raise TorchliftError("no weight of the model has a grid (tl.stored): quantize first.")
        bits = torch.cat(precisions)
    if not isinstance(bits, Tensor):
        return dict(bits)
    values, counts = bits.unique(return_counts=True)
    return {int(p) if p == int(p) else -1: float(n) for p, n in zip(values, counts, strict=True)}


def extended(table: Mapping[int, float], p: int) -> float:
    """The table, and beyond its end a line through its last two entries."""
    last = max(table)
    return table[p] if p <= last else table[last] + (p - last) * (table[last] - table[last - 1])
