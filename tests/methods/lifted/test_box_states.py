"""State blocks in boxes and on simplices against SciPy and cvxpy."""

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls as scipy_nnls
from solving import ATOL, KINDS, close, hard_matrix, randn, rng, solve
from torch import Tensor

from torchlift.convex.solvers import Bounds, quadratic
from torchlift.methods.lifted import solvers


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("out", "p"), [(12, 6), (5, 14)])
@pytest.mark.parametrize("method", ["auto", "gradient", "pivot"])
def test_nnls_against_scipy(kind: str, out: int, p: int, method: str) -> None:
    weight, bias = hard_matrix(kind, out, p), randn(out, seed=1)
    u_next, v, mu_next, mu = randn(12, out, seed=2), randn(12, p, seed=3), 1.3, 0.05
    x = solvers.nnls(weight, bias, u_next, v, mu_next, mu, method=method)
    stacked = np.vstack([np.sqrt(mu_next) * weight.numpy(), np.sqrt(mu) * np.eye(p)])
    for row, target, center in zip(x, u_next - bias, v, strict=True):
        right = np.concatenate([np.sqrt(mu_next) * target.numpy(), np.sqrt(mu) * center.numpy()])
        close(row, scipy_nnls(stacked, right)[0])


def test_nnls_meets_the_kkt_conditions_at_size() -> None:
    weight, bias, u_next, v = randn(40, 90), randn(40, seed=1), randn(40, 40, seed=2), randn(40, 90, seed=3)
    x = solvers.nnls(weight, bias, u_next, v, 1.0, 1e-2)
    slope = (x @ weight.mT + bias - u_next) @ weight + 1e-2 * (x - v)
    assert x.min() >= 0
    assert slope.min() > -1e-8
    assert (x * slope).abs().max() < 1e-8


@pytest.mark.parametrize(("rows", "out", "mu"), [(450, 100, 1.0), (450, 300, 0.1), (20, 150, 1e-3)])
def test_large_nnls_against_scipy(rows: int, out: int, mu: float) -> None:
    """Single-precision steps and faces do most of the work, on more rows than fit the cache."""
    weight, bias = randn(out, 300) * (2 / 300) ** 0.5, 0.1 * randn(out, seed=1)
    u_next, v = randn(rows, out, seed=2).clamp(min=0), randn(rows, 300, seed=3)
    x = solvers.nnls(weight, bias, u_next, v, 1.0, mu)
    slope = (x @ weight.mT + bias - u_next) @ weight + mu * (x - v)
    assert x.min() >= 0
    assert slope.min() > -1e-8
    assert (x * slope).abs().max() < 1e-7
    stacked = np.vstack([weight.numpy(), np.sqrt(mu) * np.eye(300)])
    for row in (0, -1):
        right = np.concatenate([(u_next[row] - bias).numpy(), np.sqrt(mu) * v[row].numpy()])
        close(x[row], scipy_nnls(stacked, right)[0])


@given(seed=st.integers(0, 10**6), p=st.integers(1, 12), kind=st.sampled_from(KINDS))
@settings(max_examples=40)
def test_faces_keep_to_the_box_and_its_conditions(seed: int, p: int, kind: str) -> None:
    a = hard_matrix(kind, 5, p, seed)
    h, g = a.mT @ a + 0.1 * torch.eye(p, dtype=torch.float64), 3 * randn(20, p, seed=seed + 1)
    lo, hi = -0.5 * torch.rand(p, generator=rng(seed)).double(), torch.rand(p, generator=rng(seed)).double()
    x = quadratic(h, g, Bounds(lo, hi)).x
    slope = (x @ h - g) / (x.abs() @ h.abs() + g.abs())
    assert (x >= lo).all()
    assert (x <= hi).all()
    assert (slope[x > lo] <= ATOL).all()
    assert (slope[x < hi] >= -ATOL).all()


def cvx_rows(h: Tensor, g: Tensor, constrain: object) -> np.ndarray:
    x = cp.Variable(tuple(g.shape))
    root = np.linalg.cholesky(h.numpy())
    objective = cp.sum_squares(x @ root) / 2 - cp.sum(cp.multiply(g.numpy(), x))
    solve(cp.Problem(cp.Minimize(objective), constrain(x)))
    return np.asarray(x.value)


@pytest.mark.parametrize("method", ["auto", "gradient", "pivot"])
@pytest.mark.parametrize("kind", KINDS)
def test_box_least_squares_against_cvxpy(method: str, kind: str) -> None:
    a = hard_matrix(kind, 6, 8)
    h, g = a.mT @ a + 0.1 * torch.eye(8, dtype=torch.float64), 3 * randn(10, 8, seed=1)
    lo, hi = torch.full((8,), -0.3, dtype=torch.float64), torch.full((8,), 0.8, dtype=torch.float64)
    x = quadratic(h, g, Bounds(lo, hi), method=method).x
    close(x, cvx_rows(h, g, lambda z: [z >= -0.3, z <= 0.8]))


@pytest.mark.parametrize("method", ["auto", "gradient", "pivot"])
@pytest.mark.parametrize("kind", KINDS[:2])
def test_simplex_least_squares_against_cvxpy(method: str, kind: str) -> None:
    a = hard_matrix(kind, 6, 8)
    h, g = a.mT @ a + 0.1 * torch.eye(8, dtype=torch.float64), 3 * randn(10, 8, seed=1)
    zero, far = torch.zeros(8, dtype=torch.float64), torch.full((8,), torch.inf, dtype=torch.float64)
    x = quadratic(h, g, Bounds(zero, far, total=1.0), method=method).x
    close(x, cvx_rows(h, g, lambda z: [z >= 0, cp.sum(z, axis=1) == 1]))


@pytest.mark.parametrize("method", ["auto", "pivot"])
def test_badly_scaled_simplex_least_squares_meet_their_conditions(method: str) -> None:
    """Hx − g + ν is 0 where x > 0 and not negative elsewhere; no cone solver goes that far here."""
    a = hard_matrix("badly scaled", 6, 8)
    h, g = a.mT @ a + 0.1 * torch.eye(8, dtype=torch.float64), 3 * randn(10, 8, seed=1)
    zero, far = torch.zeros(8, dtype=torch.float64), torch.full((8,), torch.inf, dtype=torch.float64)
    x = quadratic(h, g, Bounds(zero, far, total=1.0), method=method).x
    slope = x @ h - g
    level = slope.gather(1, x.argmax(1, keepdim=True))
    size = x @ h.abs() + g.abs() + level.abs()
    assert x.min() >= 0
    assert (x.sum(1) - 1).abs().max() < 1e-9
    assert (((slope - level).abs() / size)[x > 0]).max() < ATOL
    assert ((slope - level) / size).min() > -ATOL


def test_the_algorithms_reject_what_they_cannot_do() -> None:
    h, g = torch.eye(3, dtype=torch.float64), randn(2, 3)
    bounds = Bounds(torch.zeros(3).double(), torch.ones(3).double(), total=1.0)
    with pytest.raises(ValueError, match="no algorithm 'newton'"):
        quadratic(h, g, bounds, method="newton")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no box or simplex domain"):
        solvers.nnls(h, g[0], g, g, 1.0, 1.0, activation="sigmoid")


def test_nnls_in_single_precision_is_finite_where_the_gram_matrix_is_singular() -> None:
    """34 of these 100 rows were NaN: μ = 1e-6 is below the rounding of WᵀW."""
    weight, bias = randn(30, 60).float(), randn(30, seed=1).float()
    u_next, v = randn(100, 30, seed=2).float().clamp(min=0), randn(100, 60, seed=3).float()
    x = solvers.nnls(weight, bias, u_next, v, 1.0, 1e-6)
    exact = solvers.nnls(*(t.double() for t in (weight, bias, u_next, v)), 1.0, 1e-6)

    def value(x: Tensor) -> Tensor:
        return (u_next - bias - x @ weight.double().mT).square().sum(1) + 1e-6 * (x - v).square().sum(1)

    assert x.dtype == torch.float32
    assert float((value(x.double()) - value(exact)).max()) < 1e-3
