"""What a weight, or a channel, is worth without training: scores as pure functions; less goes first."""

from collections.abc import Sequence

import torch
from torch import Tensor

from torchlift.errors import TorchliftError


def slices(entries: Tensor, dim: int) -> Tensor:
    """Entries as one row for each slice of a dimension."""
    return entries.transpose(0, dim).reshape(entries.shape[dim], -1)


def magnitude(weight: Tensor, dim: int) -> Tensor:
    """Σ w² over each slice: its squared ℓ₂ norm (Li et al. 2017 use ℓ₁)."""
    return slices(weight, dim).double().square().sum(1)


def taylor(weight: Tensor, gradient: Tensor, dim: int) -> Tensor:
    """(Σ w ∂f/∂w)² over each slice: how much f moves, to first order, without it. Molchanov et al. (2019)."""
    return slices(weight * gradient, dim).double().sum(1).square()


def lamp(weight: Tensor) -> Tensor:
    """w² / Σ {v² : |v| ≥ |w|}, entry by entry: layers become comparable. Lee et al. (2021)."""
    flat = weight.double().square().flatten()
    order = flat.argsort(stable=True)
    left = flat[order].flip(0).cumsum(0).flip(0)
    scores = torch.empty_like(flat)
    scores[order] = flat[order] / left.clamp(min=torch.finfo(torch.float64).tiny)
    return scores.view_as(weight)


def n_of_m(scores: Tensor, n: int, m: int, dim: int = 1) -> Tensor:
    """Boolean: the ``n`` largest of every ``m`` in a row along a dimension; GPUs run 2 of 4 faster."""
    size = scores.shape[dim]
    if not 0 < n < m or size % m:
        raise TorchliftError(f"{n} of {m} needs 0 < n < m and a dimension that {m} divides; got {size}.")
    tiles = scores.transpose(dim, -1).unflatten(-1, (-1, m))
    keep = torch.zeros_like(tiles, dtype=torch.bool)
    keep.scatter_(-1, tiles.topk(n, -1).indices, True)
    return keep.flatten(-2).transpose(dim, -1)


def lowest(scores: Sequence[Tensor], counts: Sequence[int]) -> list[Tensor]:
    """Boolean: the given number of lowest scores of each part; of equal ones the first."""
    found: list[Tensor] = []
    for part, count in zip(scores, counts, strict=True):
        gone = torch.zeros(part.numel(), dtype=torch.bool)
        gone[part.flatten().cpu().argsort(stable=True)[:count]] = True
        found.append(gone.view(part.shape))
    return found
