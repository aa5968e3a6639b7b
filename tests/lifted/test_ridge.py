"""Quadratic weight blocks, dense, sketched and convolutional, against NumPy and autograd."""

import numpy as np
import pytest
import torch
from solving import KINDS, close, hard_matrix, randn, rng
from torch import Tensor

from torchlift.lifted import solvers


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
    centred, target = a - a.mean(0), u - u.mean(0)
    close(weight, np.linalg.lstsq(centred.numpy(), target.numpy(), rcond=None)[0].T)
    close(bias, u.mean(0) - weight @ a.mean(0))


def test_ridge_names_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="lam must be positive"):
        solvers.ridge(randn(3, 2), randn(3, 1), 0.0, 1.0)
    with pytest.raises(ValueError, match="rho must not be negative"):
        solvers.ridge(randn(3, 2), randn(3, 1), 1.0, -1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_sketched_ridge_reaches_the_exact_solution(kind: str) -> None:
    a, u = hard_matrix(kind, 3000, 12), randn(3000, 2, seed=1)
    exact = solvers.ridge(a, u, 1.0, 1e-2)
    refined = solvers.sketched_ridge(a, u, 1.0, 1e-2, size=200, generator=rng())
    close(refined[0], exact[0])
    close(refined[1], exact[1])
    rough = solvers.sketched_ridge(a, u, 1.0, 1e-2, size=400, refine=False, generator=rng())

    def residual(answer: tuple[Tensor, Tensor]) -> float:
        return float((a @ answer[0].mT + answer[1] - u).square().sum())

    assert residual(exact) < residual(rough) < 1.2 * residual(exact)


@pytest.mark.parametrize("kind", [*KINDS, "more weights than data"])
def test_convolutional_ridge_by_gram_and_by_conjugate_gradients(kind: str) -> None:
    geometry = solvers.Convolution((3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2))
    x = randn(4, 3, 9, 8) if kind != "more weights than data" else randn(1, 3, 3, 5)
    x = x * torch.tensor([0.1, 1.0, 10.0]).double()[:, None, None] if kind == "badly scaled" else x
    x[:, 2] = x[:, 1] if kind == "rank-deficient" else x[:, 2]
    u = randn(*geometry.forward(x, randn(5, 3, 3, 2)).shape, seed=1)
    dense = [solvers.conv_ridge(x, u, geometry, 0.8, 0.3, method=m) for m in ("gram", "cg")]
    close(dense[0][0], dense[1][0])
    close(dense[0][1], dense[1][1])
    weight, bias = dense[0][0].clone().requires_grad_(), dense[0][1].clone().requires_grad_()
    out = torch.nn.functional.conv2d(x, weight, bias, (2, 1), (1, 0), (1, 2))
    gradient = torch.autograd.grad(
        0.8 * (out - u).square().sum() + 0.3 * weight.square().sum(), (weight, bias)
    )
    assert max(float(g.abs().max()) for g in gradient) < 1e-8


def test_convolution_adjoints() -> None:
    geometry = solvers.Convolution((3, 3), stride=(2, 2), padding=(1, 1))
    x, weight = randn(2, 3, 8, 8), randn(4, 3, 3, 3, seed=1)
    out = geometry.forward(x, weight)
    y = randn(*out.shape, seed=2)
    inner = (out * y).sum()
    assert inner == pytest.approx(float((x * geometry.adjoint_input(x.shape, weight, y)).sum()))
    assert inner == pytest.approx(float((weight * geometry.adjoint_weight(x, weight.shape, y)).sum()))
