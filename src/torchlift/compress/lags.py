"""The Gram matrix of a convolution's patches from lags, many times cheaper than from the patches themselves.

    G[t, t'] = Σ_p x[p + t] x[p + t']ᵀ:    G[t + 1, t' + 1] = G[t, t'] + x[P + t] x[P + t']ᵀ − x[t] x[t']ᵀ

for a kernel along one dimension and a stride of 1: only t = 0 is summed over all P positions.
"""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class Lags:
    """What one batch adds: sums for t = 0, and the ends of its maps."""

    first: Tensor
    """(groups, channels, taps, channels)"""
    start: Tensor
    """(groups, samples, channels · (taps − 1))"""
    end: Tensor
    taps: int

    @classmethod
    def of(cls, x: Tensor, taps: int) -> "Lags":
        """From maps (groups, samples, channels, length)."""
        length = x.shape[-1] - taps + 1
        first = lag_rows(x[..., :length])
        sums = [first.mT @ lag_rows(x[..., lag : lag + length]) for lag in range(taps)]
        return cls(torch.stack(sums, 2), x[..., : taps - 1].flatten(2), x[..., length:].flatten(2), taps)


def lagged_gram(batches: Sequence[Lags]) -> Tensor:
    """(groups, channels · taps, channels · taps) of all batches."""
    first, taps = torch.stack([b.first for b in batches]).sum(0), batches[0].taps
    groups, channels = first.shape[:2]
    start, end = (torch.cat(some, 1) for some in zip(*((b.start, b.end) for b in batches), strict=True))
    borders = (end.mT @ end).baddbmm_(start.mT, start, alpha=-1)
    borders = borders.view(groups, channels, taps - 1, channels, taps - 1)
    gram = first.new_zeros(groups, channels, taps, channels, taps)
    gram[:, :, 0] = first.mT
    for tap in range(1, taps):
        gram[:, :, tap, :, 1:] = gram[:, :, tap - 1, :, :-1] + borders[:, :, tap - 1]
        gram[:, :, tap, :, 0] = gram[:, :, 0, :, tap].mT
    return gram.view(groups, channels * taps, channels * taps)


def lag_rows(x: Tensor) -> Tensor:
    """(groups, samples, channels, length) → (groups, samples · length, channels)."""
    return x.transpose(2, 3).flatten(1, 2)


def line_of(x: Tensor, layer_kernel: tuple[int, ...]) -> Tensor:
    """Maps (samples, channels, *sizes) of a kernel along one dimension as (samples, channels, length)."""
    along = max(range(len(layer_kernel)), key=lambda k: layer_kernel[k])
    moved = x.movedim(2 + along, -1)  # (samples, channels, *others, length)
    return moved.movedim(1, -2).flatten(0, -3)
