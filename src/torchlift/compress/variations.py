"""Variations of unlabelled inputs that a network hardly notices: more inputs to match it on.

    x' = ± x,   c x,   x mirrored or moved along a dimension

Nothing is known of the inputs but what the network makes of them: a variation is used where the outputs on
the calibration data move by less than a tenth of their variance.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from torchlift.compress.distance import rows
from torchlift.compress.running import run

MOVED = 0.1
"""Σ ‖y(x') − y(x)‖² / Σ ‖y(x) − ȳ‖² below which a variation is used."""

SHORT = 4
"""Dimensions shorter than this are neither mirrored nor moved along."""

REACH = 8
"""Inputs are moved by at most 1 / REACH of a dimension."""

SAMPLES = 64

Vary = Callable[[Tensor, Tensor], Tensor]
"""(inputs, a number in [0, 1) for each sample) → inputs; it moves most at 1."""


def negated(x: Tensor, chance: Tensor) -> Tensor:
    """Half of the samples with the other sign."""
    return torch.where(over(chance, x) >= 0.5, -x, x)


def scaled(x: Tensor, chance: Tensor) -> Tensor:
    """By 3/4 to 4/3."""
    return x * (16 / 9) ** (over(chance, x) - 0.5)


def mirrored(dim: int, x: Tensor, chance: Tensor) -> Tensor:
    """Half of the samples, along a dimension."""
    return torch.where(over(chance, x) >= 0.5, x.flip(dim), x)


def moved(dim: int, x: Tensor, chance: Tensor) -> Tensor:
    """All samples by as much, along a dimension, around its end."""
    farthest = max(1, x.shape[dim] // REACH)
    return x.roll(round(farthest * (2 * float(chance[-1]) - 1)), dim)


def over(chance: Tensor, x: Tensor) -> Tensor:
    """A number for each sample as wide as the samples."""
    return chance.to(x).view(-1, *[1] * (x.ndim - 1))


@dataclasses.dataclass(frozen=True)
class Variations:
    """Those that a network hardly notices, one after the other."""

    used: Sequence[Vary]

    @classmethod
    def of(cls, original: nn.Module, x: Tensor) -> "Variations":
        """Each tried on some inputs at its farthest."""
        x = x[:SAMPLES]
        if not x.is_floating_point() or x.ndim < 2:
            return cls(())
        dims = [d for d in range(1, x.ndim) if x.shape[d] >= SHORT]
        along = [functools.partial(f, d) for f in (mirrored, moved) for d in dims]
        y = rows(run(original, (x,)))
        energy = (y - y.mean(0)).square().sum()

        def harmless(vary: Vary) -> bool:
            z = rows(run(original, (vary(x, torch.ones(len(x), device=x.device)),)))
            return z.shape == y.shape and bool((z - y).square().sum() < MOVED * energy)

        return cls([vary for vary in (negated, scaled, *along) if harmless(vary)])

    def __call__(self, x: Tensor) -> Tensor:
        """Inputs varied at random."""
        for vary in self.used:
            x = vary(x, torch.rand(len(x), device=x.device))
        return x
