"""Tall ridge problems by random sketches (Woodruff 2014; Pilanci & Wainwright 2016)."""

import torch
from torch import Tensor

from torchlift.lifted.solvers.conv import conjugate_gradient


def count_sketch(rows: Tensor, size: int, generator: torch.Generator | None = None) -> Tensor:
    """SA for a count sketch S (size × m): each row is added, with a random sign, to one random bucket."""
    bucket = torch.randint(size, (len(rows),), generator=generator, device=rows.device)
    sign = torch.randint(2, (len(rows), 1), generator=generator, device=rows.device).to(rows.dtype) * 2 - 1
    return rows.new_zeros(size, rows.shape[1]).index_add_(0, bucket, sign * rows)


def sketched_ridge(
    a: Tensor,
    u: Tensor,
    lam: float,
    rho: float,
    *,
    size: int | None = None,
    refine: bool = True,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """argmin over W, b of λ‖AWᵀ + 1bᵀ − U‖² + ρ‖W‖² from a sketch of ``size`` rows (default 8 × columns).

    The sketch alone gives an answer within a constant factor of the least residual (``refine=False``).
    Refined, its Cholesky factor preconditions conjugate gradients on the full data: a few passes over A.
    """
    size = size or min(len(a), 8 * a.shape[1])
    mean_a, mean_u = a.mean(0), u.mean(0)
    small = count_sketch(torch.cat([a - mean_a, u - mean_u], 1), size, generator)
    small_a, small_u = small[:, : a.shape[1]], small[:, a.shape[1] :]
    gram = small_a.mT @ small_a
    gram.diagonal().add_(rho / lam)
    factor = torch.linalg.cholesky(gram)
    if not refine:
        weight = torch.cholesky_solve(small_a.mT @ small_u, factor).mT
        return weight, mean_u - weight @ mean_a

    def normal(half: Tensor) -> Tensor:
        x = torch.linalg.solve_triangular(factor.mT, half, upper=True)
        image = a @ x
        image = a.mT @ (image - image.mean(0)) + rho / lam * x
        return torch.linalg.solve_triangular(factor, image, upper=False)

    right = torch.linalg.solve_triangular(factor, a.mT @ (u - mean_u), upper=False)
    half = conjugate_gradient(normal, right)
    weight = torch.linalg.solve_triangular(factor.mT, half, upper=True).mT
    return weight, mean_u - weight @ mean_a
