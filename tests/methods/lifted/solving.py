"""What the solvers' tests share: hard matrices, a reference solver, a comparison (float64, 1e-6)."""

import cvxpy as cp
import numpy as np
import torch
from torch import Tensor

ATOL = 1e-6
KINDS = ["random", "rank-deficient", "badly scaled"]


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=rng(seed), dtype=torch.float64)


def hard_matrix(kind: str, rows: int, columns: int, seed: int = 0) -> Tensor:
    a = randn(rows, columns, seed=seed)
    if kind == "rank-deficient":
        a[:, columns // 2 :] = a[:, : columns - columns // 2]
    if kind == "badly scaled":
        a = a * torch.logspace(-4, 4, columns, dtype=torch.float64)
    return a


def solve(problem: cp.Problem) -> None:
    for tolerance in (1e-13, 1e-11, 1e-9, 1e-8):
        names = ("tol_gap_abs", "tol_gap_rel", "tol_feas")
        try:
            problem.solve(solver=cp.CLARABEL, **dict.fromkeys(names, tolerance))
            return
        except (cp.SolverError, UserWarning):
            continue
    raise AssertionError("no reference solution")


def close(a: Tensor, b: Tensor | np.ndarray, atol: float = ATOL) -> None:
    expected = torch.as_tensor(b)
    scale = max(1.0, float(expected.abs().max()))
    assert float((a - expected).abs().max()) <= atol * scale
