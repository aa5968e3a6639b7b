"""Quadratic weight blocks against NumPy; adjoints of convolutions."""

import numpy as np
import pytest
from solving import KINDS, close, hard_matrix, randn

from torchlift.methods.lifted import solvers


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("m", "p"), [(40, 7), (9, 20)])
def test_ridge_against_augmented_least_squares(kind: str, m: int, p: int) -> None:
    a, u, lam, rho = hard_matrix(kind, m, p), randn(m, 3, seed=1), 0.7, 1e-2
    weight, bias = solvers.ridge(a, u, lam, rho)
    ones = np.ones((m, 1))
    top = np.sqrt(lam) * np.hstack([a.numpy(), ones])
    bottom = np.sqrt(rho) * np.hstack([np.eye(p), np.zeros((p, 1))])
    right = np.vstack([np.sqrt(lam) * u.numpy(), np.zeros((p, 3))])
    expected = np.linalg.lstsq(np.vstack([top, bottom]), right, rcond=None)[0]
    close(weight, expected[:-1].T)
    close(bias, expected[-1])


@pytest.mark.parametrize(("m", "p"), [(30, 8), (6, 20)])
def test_ridge_without_penalty_has_least_norm_on_rank_deficient_data(m: int, p: int) -> None:
    a, u = hard_matrix("rank-deficient", m, p), randn(m, 2, seed=1)
    weight, bias = solvers.ridge(a, u, 1.0, 0.0)
    centered, target = a - a.mean(0), u - u.mean(0)
    close(weight, np.linalg.lstsq(centered.numpy(), target.numpy(), rcond=None)[0].T)
    close(bias, u.mean(0) - weight @ a.mean(0))


def test_ridge_names_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="lam must be positive"):
        solvers.ridge(randn(3, 2), randn(3, 1), 0.0, 1.0)
    with pytest.raises(ValueError, match="rho must not be negative"):
        solvers.ridge(randn(3, 2), randn(3, 1), 1.0, -1.0)


def test_convolution_adjoints() -> None:
    geometry = solvers.Convolution((3, 3), stride=(2, 2), padding=(1, 1))
    x, weight = randn(2, 3, 8, 8), randn(4, 3, 3, 3, seed=1)
    out = geometry.forward(x, weight)
    y = randn(*out.shape, seed=2)
    inner = (out * y).sum()
    assert inner == pytest.approx(float((x * geometry.adjoint_input(x.shape, weight, y)).sum()))
    assert inner == pytest.approx(float((weight * geometry.adjoint_weight(x, weight.shape, y)).sum()))
