"""Weight blocks with sparse, low-rank and orthogonal weights against cvxpy and SciPy."""

import cvxpy as cp
import numpy as np
import pytest
import torch
from scipy import linalg
from solving import ATOL, close, hard_matrix, randn, solve

from torchlift.methods.lifted import activations, penalties, solvers

REGULARIZERS = [solvers.Lasso(0.6), solvers.GroupLasso(0.8), solvers.Nuclear(1.5)]
INSTANCES = [("random", 20, 6), ("rank-deficient", 20, 6), ("random", 5, 9), ("badly scaled", 20, 6)]


@pytest.mark.parametrize(
    ("regularizer", "kind", "m", "p"),
    [
        (regularizer, *instance)
        for regularizer in REGULARIZERS
        for instance in INSTANCES
        if regularizer.by_column or instance[0] != "badly scaled"  # singular values have no scale per input
    ],
    ids=repr,
)
def test_non_smooth_weights_against_cvxpy(
    regularizer: solvers.Regularizer, kind: str, m: int, p: int
) -> None:
    a, u = hard_matrix(kind, m, p), randn(m, 3, seed=1).clamp(min=0)
    penalty = penalties.Bregman(activations.get("relu"))
    theta = solvers.regularized_weights(
        a, u, penalty, 0.9, regularizer, torch.zeros(3, p + 1).double(), rule=solvers.Exact(1e-13, 100_000)
    )
    w, b = cp.Variable((3, p)), cp.Variable((1, 3))
    v = a.numpy() @ w.T + np.ones((m, 1)) @ b
    strength = regularizer.strength  # type: ignore[attr-defined]
    norm = {
        solvers.Lasso: lambda: cp.sum(cp.abs(w)),
        solvers.GroupLasso: lambda: cp.sum(cp.norm(w, axis=0)),
        solvers.Nuclear: lambda: cp.normNuc(w),
    }[type(regularizer)]()
    fit = cp.sum_squares(cp.pos(v)) / 2 - cp.sum(cp.multiply(u.numpy(), v))
    problem = cp.Problem(cp.Minimize(0.9 * fit + strength * norm))
    solve(problem)
    mine = a @ theta[:, :-1].mT + theta[:, -1]
    value = 0.9 * (mine.clamp(min=0).square().sum() / 2 - (u * mine).sum()) + regularizer.value(theta[:, :-1])
    assert float(value) == pytest.approx(problem.value, rel=ATOL)
    if kind == "random" and m > p:  # elsewhere the minimizer need not be unique
        atol = 1e-5 if isinstance(regularizer, solvers.Nuclear) else ATOL
        close(theta[:, :-1], w.value, atol)
        close(theta[:, -1], b.value[0], atol)


def test_orthogonal_weights_solve_procrustes() -> None:
    a, u = randn(30, 5), randn(30, 5, seed=1)
    penalty = penalties.Bregman(activations.get("linear"))
    start = torch.cat([solvers.ridge(a, u, 1.0, 1.0)[0], torch.zeros(5, 1).double()], 1)
    theta = solvers.regularized_weights(
        a,
        u,
        penalty,
        1.0,
        solvers.Orthogonal(),
        start,
        bias=False,
        rule=solvers.Exact(1e-13, 20_000),
    )
    rotation, _ = linalg.orthogonal_procrustes(a.numpy(), u.numpy())
    best = np.square(a.numpy() @ rotation - u.numpy()).sum()
    actual = float((a @ theta[:, :-1].mT - u).square().sum())
    eye = torch.eye(5, dtype=torch.float64)
    assert (theta[:, :-1] @ theta[:, :-1].mT - eye).abs().max() < 1e-12
    assert actual == pytest.approx(best, rel=1e-6)
