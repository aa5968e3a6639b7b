"""A layer as two: W = W″ diag(λ) W′ with every neuron between them on a straight piece of its activation."""

import copy

import torch
from torch import Tensor, nn

from torchlift.errors import TorchliftError


def orthogonal(size: int, generator: torch.Generator | None, like: Tensor) -> Tensor:
    """A random rotation; the identity without a generator."""
    if generator is None:
        return torch.eye(size, dtype=like.dtype, device=like.device)
    drawn = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))[0]
    return drawn.to(like)


def factors(weight: Tensor, width: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """A, B with A B = W (m × n) and ``width`` ≥ min(m, n) neurons between them (Lemma A.1, both cases).

    Without a generator the proof's own: B = W, A = I if m ≤ n, B = I, A = W otherwise. With one, B is rotated
    and A turned back. More neurons than min(m, n) are zero neurons, with no weights in or out.
    """
    m, n = weight.shape
    rank = min(m, n)
    if width < rank:
        raise TorchliftError(
            f"an inserted layer needs at least min({m}, {n}) = {rank} neurons to keep the function, "
            f"got width={width}."
        )
    mix = orthogonal(rank, generator, weight)
    inner, outer = (mix @ weight, mix.T) if m <= n else (mix, weight @ mix.T)
    extra = width - rank
    return (
        torch.cat([outer, outer.new_zeros(m, extra)], 1),
        torch.cat([inner, inner.new_zeros(extra, n)]),
    )


def place(low: Tensor, high: Tensor, lower: Tensor, upper: Tensor, margin: float) -> tuple[Tensor, Tensor]:
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


def resized(layer: nn.Module, features: int) -> nn.Module:
    """The layer with another number of outputs, all zero."""
    assert isinstance(layer, nn.Linear | nn.Conv2d)
    weight = layer.weight.new_zeros(features, *layer.weight.shape[1:])
    bias = weight.new_zeros(features)
    new = copy.copy(layer)
    new._parameters = {"weight": nn.Parameter(weight), "bias": nn.Parameter(bias)}  # pyright: ignore[reportPrivateUsage]
    setattr(new, "out_features" if isinstance(layer, nn.Linear) else "out_channels", features)
    return new


def pointwise(layer: nn.Module, inputs: int, outputs: int) -> nn.Module:
    """A Linear, or a 1×1 convolution, of the layer's kind, all zero."""
    like = layer.get_parameter("weight")
    with torch.random.fork_rng(devices=[]):
        kind = nn.Linear(inputs, outputs) if isinstance(layer, nn.Linear) else nn.Conv2d(inputs, outputs, 1)
    for parameter in kind.parameters():
        nn.init.zeros_(parameter)
    return kind.to(like)


def exact(tensor: Tensor) -> Tensor:
    """In float64, off the graph."""
    return tensor.detach().double().cpu()


def fill(target: Tensor, values: Tensor) -> None:
    """Copy values of the same number into a tensor."""
    with torch.no_grad():
        target.copy_(values.view_as(target))
