"""Quadratic weight blocks against NumPy; adjoints of convolutions."""

import numpy as np
import pytest
import torch
from solving import KINDS, close, hard_matrix, randn
from torch import nn

import torchlift as tl
from torchlift import lifted
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


def test_a_sketch_is_near_the_minimum_and_refining_reaches_it() -> None:
    a, generator = randn(3000, 8), torch.Generator().manual_seed(0)
    u = a @ randn(8, 2, seed=1) + 0.5 * randn(3000, 2, seed=2) + 3.0
    exact = solvers.ridge(a, u, 0.7, 1e-2)
    excess = []
    for rows, refine in ((80, 0), (800, 0), (80, 20)):
        weight, bias = solvers.sketched_ridge(a, u, 0.7, 1e-2, rows, refine=refine, generator=generator)
        excess.append(
            float((a @ (weight - exact[0]).mT + (bias - exact[1])).norm() / (u - a @ exact[0].mT).norm())
        )
    assert excess[2] < 1e-3 < excess[1] < excess[0] < 1.0
    with pytest.raises(ValueError, match="no larger than the 8 inputs"):
        solvers.sketched_ridge(a, u, 1.0, 0.0, 8)


def test_training_from_sketches_ends_near_training_from_all_samples() -> None:
    x = randn(600, 6)
    y = (x[:, :3] ** 2).argmax(1)
    losses = []
    for sketch in (None, 200):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3)).double()
        method = lifted.BCD(penalty="classical", update="accelerated", sketch=sketch)
        lifted.train(model, (x, y), method=method, epochs=3, progress=False)
        losses.append(float(nn.functional.cross_entropy(model(x).detach(), y)))
    assert losses[1] < 1.15 * losses[0]
    assert losses[1] != losses[0]
    with pytest.raises(tl.TorchliftError, match="sketch is for penalty='classical'"):
        lifted.BCD(sketch=100)


def test_convolution_adjoints() -> None:
    geometry = solvers.ConvolutionGeometry((3, 3), stride=(2, 2), padding=(1, 1))
    x, weight = randn(2, 3, 8, 8), randn(4, 3, 3, 3, seed=1)
    out = geometry.forward(x, weight)
    y = randn(*out.shape, seed=2)
    inner = (out * y).sum()
    assert inner == pytest.approx(float((x * geometry.adjoint_input(x.shape, weight, y)).sum()))
    assert inner == pytest.approx(float((weight * geometry.adjoint_weight(x, weight.shape, y)).sum()))
