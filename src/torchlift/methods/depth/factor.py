"""A layer as two: W = W″ diag(λ) W′ with every neuron between them on a straight piece of its activation."""

import copy

import torch
from torch import Tensor, nn

from torchlift.errors import TorchliftError
from torchlift.flow.affine import composed_weight, through


def orthogonal(size: int, generator: torch.Generator | None, like: Tensor) -> Tensor:
    """A random rotation; the identity without a generator."""
    if generator is None:
        return torch.eye(size, dtype=like.dtype, device=like.device)
    drawn = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))[0]
    return drawn.to(like)


def random_invertible(size: int, generator: torch.Generator | None, like: Tensor) -> tuple[Tensor, Tensor]:
    """A random matrix with singular values in [1/2, 2], and its inverse; the identity without a generator."""
    left, right = orthogonal(size, generator, like), orthogonal(size, generator, like)
    if generator is None:
        return left, right
    sizes = 4 ** (torch.rand(size, generator=generator, dtype=torch.float64).to(like) - 0.5)
    return left * sizes @ right, right.T / sizes @ left.T


def factors(weight: Tensor, width: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """A, B with A B = W (m × n) and ``width`` ≥ min(m, n) neurons between them (Lemma A.1, both cases).

    Without a generator the proof's own: B = W, A = I if m ≤ n, B = I, A = W otherwise; more neurons than
    min(m, n) are zero neurons. With one, a general member of the manifold: B is multiplied by a random
    invertible matrix, A by its inverse, and more neurons have random weights in and none out.
    """
    m, n = weight.shape
    rank = min(m, n)
    if width < rank:
        raise TorchliftError(
            f"an inserted layer needs at least min({m}, {n}) = {rank} neurons to keep the function, "
            f"got width={width}."
        )
    mix, back = random_invertible(rank, generator, weight)
    inner, outer = (mix @ weight, back) if m <= n else (mix, weight @ back)
    extra = inner.new_zeros(width - rank, n)
    if generator is not None:
        drawn = torch.randn(extra.shape, generator=generator, dtype=torch.float64)
        extra = drawn.to(weight) * inner.abs().mean()
    return torch.cat([outer, outer.new_zeros(m, width - rank)], 1), torch.cat([inner, extra])


def grouped_factors(
    weight: Tensor, groups: int, width: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """:func:`factors` of every group of a convolution, ``width`` neurons in all, one group above another."""
    if width % groups:
        raise TorchliftError(
            f"an inserted layer of {groups} groups has a multiple of that, got width={width}."
        )
    pairs = [factors(block, width // groups, generator) for block in weight.chunk(groups)]
    return torch.cat([outer for outer, _ in pairs]), torch.cat([inner for _, inner in pairs])


def composed(second: Tensor, first: Tensor, groups: int) -> Tensor:
    """:func:`torchlift.flow.affine.composed_weight`, group by group."""
    return torch.cat(
        [composed_weight(a, b) for a, b in zip(second.chunk(groups), first.chunk(groups), strict=True)]
    )


def carried(weight: Tensor, value: Tensor, groups: int) -> Tensor:
    """:func:`torchlift.flow.affine.through`, group by group."""
    return torch.cat([through(a, v) for a, v in zip(weight.chunk(groups), value.chunk(groups), strict=True)])


def fit_inside(
    low: Tensor, high: Tensor, lower: Tensor, upper: Tensor, margin: float
) -> tuple[Tensor, Tensor]:
    """ζ, β with ζ z + β inside (lower, upper) for all z in [low, high], ``margin`` times their length apart.

    Inputs are shrunk (ζ < 1) only where a piece is too short for them, moved to the middle of a bounded piece
    and just inside an unbounded one. An input that is constant may lie anywhere inside.
    """
    size = torch.maximum(low.abs(), high.abs())
    length = torch.maximum(high - low, 1e-3 * size)
    length = torch.where(length > 1e-30, length, torch.ones_like(length))  # as good as constant
    room = upper - lower
    scale = (room / ((1 + 2 * margin) * length)).clamp(max=1.0)
    middle = torch.where(room.isfinite(), (lower + upper) / 2 - scale * (low + high) / 2, 0.0)
    right = lower + margin * length - low
    left = upper - margin * length - high
    shift = torch.where(
        upper.isinf(), torch.where(lower.isinf(), 0.0, right), torch.where(lower.isinf(), left, middle)
    )
    return scale, shift


def resized_layer(layer: nn.Module, features: int) -> nn.Module:
    """The layer with another number of outputs, all zero."""
    assert isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d)
    weight = layer.weight.new_zeros(features, *layer.weight.shape[1:])
    bias = weight.new_zeros(features)
    new = copy.copy(layer)
    new._parameters = {"weight": nn.Parameter(weight), "bias": nn.Parameter(bias)}  # pyright: ignore[reportPrivateUsage]
    setattr(new, "out_features" if isinstance(layer, nn.Linear) else "out_channels", features)
    return new


def pointwise(layer: nn.Module, inputs: int, outputs: int) -> nn.Module:
    """A Linear, or a convolution of one position with as many groups, of the layer's kind, all zero."""
    like = layer.get_parameter("weight")
    with torch.random.fork_rng(devices=[]):
        if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            kind = type(layer)(inputs, outputs, 1, groups=layer.groups)
        else:
            kind = nn.Linear(inputs, outputs)
    for parameter in kind.parameters():
        nn.init.zeros_(parameter)
    return kind.to(like)


def in_double(tensor: Tensor) -> Tensor:
    """In float64, off the graph."""
    return tensor.detach().double().cpu()


def copy_into(target: Tensor, values: Tensor) -> None:
    """Copy values of the same number into a tensor."""
    with torch.no_grad():
        target.copy_(values.view_as(target))
