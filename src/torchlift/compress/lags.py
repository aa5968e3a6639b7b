"""The Gram matrix of a convolution's patches from lags, many times cheaper than from the patches themselves.

    G[t, t'] = Σ_p x[p + t] x[p + t']ᵀ:    G[t + 1, t' + 1] = G[t, t'] + x[P + t] x[P + t']ᵀ − x[t] x[t']ᵀ

for a kernel along one dimension and a stride of 1: only t = 0 is summed over all P positions.
"""

from torch import Tensor


def lagged_gram(x: Tensor, taps: int) -> Tensor:
    """(groups, channels · taps, channels · taps) from maps (groups, samples, channels, length)."""
    groups, _, channels, length = x.shape
    places = length - taps + 1
    start, end = x[..., : taps - 1], x[..., places:]
    borders = border_gram(end) - border_gram(start)  # (groups, channels, taps − 1, channels, taps − 1)
    gram = x.new_zeros(groups, channels, taps, channels, taps)
    first = rows(x[..., :places])
    for lag in range(taps):
        gram[:, :, 0, :, lag] = first.mT @ rows(x[..., lag : lag + places])
    for tap in range(1, taps):
        gram[:, :, tap, :, 1:] = gram[:, :, tap - 1, :, :-1] + borders[:, :, tap - 1]
        gram[:, :, tap, :, 0] = gram[:, :, 0, :, tap].mT
    return gram.reshape(groups, channels * taps, channels * taps)


def rows(x: Tensor) -> Tensor:
    """(groups, samples, channels, length) → (groups, samples · length, channels)."""
    return x.transpose(2, 3).flatten(1, 2)


def border_gram(x: Tensor) -> Tensor:
    """Σ over samples of all products of a border's entries."""
    flat = x.flatten(2)
    gram = flat.mT @ flat
    return gram.reshape(len(x), *x.shape[2:], *x.shape[2:])


def line_of(x: Tensor, layer_kernel: tuple[int, ...]) -> Tensor:
    """Maps (samples, channels, *sizes) of a kernel along one dimension as (samples, channels, length)."""
    along = max(range(len(layer_kernel)), key=lambda k: layer_kernel[k])
    moved = x.movedim(2 + along, -1)  # (samples, channels, *others, length)
    return moved.movedim(1, -2).flatten(0, -3)
