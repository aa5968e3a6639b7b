"""Least squares from fewer rows: a random sketch of the samples (Pilanci and Wainwright 2016)."""

import torch
from torch import Tensor


def count_sketch(a: Tensor, rows: int, generator: torch.Generator | None = None) -> Tensor:
    """S a, with one ±1 at a random place in every column of S: E‖Sx‖² = ‖x‖²."""
    where = torch.randint(rows, (len(a),), generator=generator).to(a.device)
    sign = torch.randint(2, (len(a), 1), generator=generator).to(a) * 2 - 1
    return a.new_zeros(rows, a.shape[1]).index_add_(0, where, sign * a)


def sketched_ridge(
    A: Tensor,
    U: Tensor,
    lam: float,
    rho: float,
    rows: int,
    *,
    refine: int = 0,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """W, b near the minimum of λ‖AWᵀ + 1bᵀ − U‖² + ρ‖W‖², from so many sketched rows.

    Without ``refine`` the sketched problem is solved: its Gram matrix costs rows·p² and no product sees all
    samples. Every step of ``refine`` takes a gradient of the whole problem with the sketched Hessian, which
    converges to the minimum and costs two products with all samples.
    """
    if lam <= 0 or rho < 0:
        raise ValueError(f"sketched_ridge: lam must be positive and rho not negative, got {lam}, {rho}")
    if rows <= A.shape[1]:
        raise ValueError(f"sketched_ridge: a sketch of {rows} rows is no larger than the {A.shape[1]} inputs")
    mean, out_mean, inputs = A.mean(0), U.mean(0), A.shape[1]
    small = count_sketch(torch.cat([A - mean, U - out_mean], 1), rows, generator)
    a, u = small[:, :inputs], small[:, inputs:]
    gram = a.mT @ a
    gram.diagonal().add_(rho / lam)
    factor = torch.linalg.cholesky(gram)
    weight = torch.cholesky_solve(a.mT @ u, factor).mT
    for _ in range(refine):
        left = (U - out_mean) - (A - mean) @ weight.mT
        slope = (A - mean).mT @ left - rho / lam * weight.mT
        weight = weight + torch.cholesky_solve(slope, factor).mT
    return weight, out_mean - weight @ mean
