"""Regression on functions a network can express."""

from collections.abc import Callable

import torch
from torch import Tensor

from torchlift.data.splits import Splits, split


def kaiming(outputs: int, inputs: int, generator: torch.Generator) -> Tensor:
    """W ~ N(0, 2 / inputs), outputs × inputs, in float64."""
    return torch.randn(outputs, inputs, generator=generator, dtype=torch.float64) * (2 / inputs) ** 0.5


def teacher(x: Tensor, stem: Tensor, blocks: list[tuple[Tensor, Tensor]], head: Tensor) -> Tensor:
    """y = h_L Vᵀ with h_0 = relu(x Sᵀ), h_l = relu(h_{l−1} + relu(h_{l−1} Aᵀ) Bᵀ); no biases."""
    h = (x @ stem.T).relu()
    for first, second in blocks:
        h = (h + (h @ first.T).relu() @ second.T).relu()
    return h @ head.T


def drawn_teacher(
    blocks: int, generator: torch.Generator, inputs: int = 5, width: int = 64
) -> Callable[[Tensor], Tensor]:
    """A residual network with Kaiming weights, as a function of points in float64."""
    stem = kaiming(width, inputs, generator)
    pairs = [(kaiming(width, width, generator), kaiming(width, width, generator)) for _ in range(blocks)]
    head = kaiming(1, width, generator)
    return lambda x: teacher(x, stem, pairs, head)


def random_teacher(blocks: int, seed: int = 0) -> Callable[[Tensor], Tensor]:
    """The function behind :func:`teacher_student` with this seed, before it is brought to [0, 1]."""
    return drawn_teacher(blocks, torch.Generator().manual_seed(seed))


def teacher_student(
    blocks: int = 7, n: int = 10_000, seed: int = 0, inputs: int = 5, width: int = 64
) -> Splits:
    """y = f*(x), x ~ U[0, 1]⁵, f* a residual network of ``blocks`` blocks with Kaiming weights; 70–10–20.

    Neural lifting, section 5.2 and appendix B.2, which uses 7, 8 and 9 blocks: the more, the rougher the
    function. Kaiming weights without normalization make outputs grow with depth, so the targets are
    brought to [0, 1] by their least and largest value, the range of the paper's Figure 3.
    """
    generator = torch.Generator().manual_seed(seed)
    function = drawn_teacher(blocks, generator, inputs, width)
    x = torch.rand(n, inputs, generator=generator, dtype=torch.float64)
    y = function(x)
    y = (y - y.min()) / (y.max() - y.min())
    return split(x.float(), y.float(), "regression", seed)
