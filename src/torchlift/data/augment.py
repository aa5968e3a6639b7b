"""Random changes to whole batches in memory."""

import torch
from torch import Tensor
from torch.nn.functional import pad


def crop_flip(images: Tensor, generator: torch.Generator, padding: int = 4) -> Tensor:
    """out[n, c, i, j] = padded[n, c, i + a_n, j' + b_n], j' = j or its mirror image, by a fair coin.

    The standard augmentation of CIFAR (He et al., 2016): zeros around the image, a random window of the
    old size, half of them flipped; each image of the batch has its own draw, all of them from
    ``generator``. One gather: a few per cent of a training step of LeNet-5 (benchmarks/augment.py).
    """
    n, channels, height, width = images.shape
    offsets = torch.randint(2 * padding + 1, (2, n, 1), generator=generator)
    flips = torch.randint(2, (n, 1), generator=generator).bool()
    rows = torch.arange(height) + offsets[0]
    columns = torch.arange(width).expand(n, -1)
    columns = torch.where(flips, columns.flip(1), columns) + offsets[1]
    index = rows[:, :, None] * (width + 2 * padding) + columns[:, None, :]
    index = index.view(n, 1, -1).expand(-1, channels, -1).to(images.device)
    return pad(images, (padding,) * 4).flatten(2).gather(2, index).view_as(images)


def cutout(images: Tensor, generator: torch.Generator, side: int = 16) -> Tensor:
    """Zeros in a square around a random pixel of each image; parts of it may lie outside.

    DeVries and Taylor, 2017: on CIFAR-10, normalized, 16 pixels.
    """
    n, _, height, width = images.shape
    rows = torch.randint(height, (n, 1), generator=generator)
    columns = torch.randint(width, (n, 1), generator=generator)
    hit_rows = (torch.arange(height) - rows + side // 2).clamp(-1, side)
    hit_columns = (torch.arange(width) - columns + side // 2).clamp(-1, side)
    inside_rows, inside_columns = ((hit >= 0) & (hit < side) for hit in (hit_rows, hit_columns))
    holes = inside_rows[:, None, :, None] & inside_columns[:, None, None, :]
    return images.masked_fill(holes.to(images.device), 0.0)


def crop_flip_cutout(images: Tensor, generator: torch.Generator, padding: int = 4, side: int = 16) -> Tensor:
    """:func:`crop_flip`, then :func:`cutout`."""
    return cutout(crop_flip(images, generator, padding), generator, side)
