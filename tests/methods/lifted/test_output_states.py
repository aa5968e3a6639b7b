"""State blocks at and below the output: cross-entropy on the simplex, all layers at once."""

from itertools import pairwise

import cvxpy as cp
import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from solving import close, hard_matrix, randn, solve

from torchlift.methods.lifted import solvers


@pytest.mark.parametrize("lam", [1e-4, 0.2, 1.0, 1e4])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_simplex_cross_entropy_meets_its_conditions(lam: float, soft: bool, scale: float) -> None:
    """−y/z + 2λ(z − x₀) is the same multiplier wherever z > 0, and the bracket holds."""
    x0 = scale * randn(200, 10)
    y = torch.softmax(randn(200, 10, seed=1), 1) if soft else torch.eye(10).double()[torch.arange(200) % 10]
    z = solvers.simplex_cross_entropy(x0, y, lam)
    assert (z.sum(1) - 1).abs().max() < 1e-12
    assert z.min() >= 0
    active = z > 1e-9
    level = torch.where(active, -y / z.clamp(min=1e-300) + 2 * lam * (z - x0), torch.nan)
    spread = level.nan_to_num(-torch.inf).amax(1) - level.nan_to_num(torch.inf).amin(1)
    assert (spread / (1 + level.nan_to_num(0).abs().amax(1))).max() < 1e-6


def test_simplex_cross_entropy_against_cvxpy_and_the_papers_counterexample() -> None:
    x0, y, lam = torch.tensor([[0.8, -0.5]]).double(), torch.tensor([[1.0, 0.0]]).double(), 0.2
    close(solvers.simplex_cross_entropy(x0, y, lam), torch.tensor([[1.0, 0.0]]).double())
    x0, labels = 0.5 * randn(6, 5), torch.arange(6) % 5
    z = cp.Variable((6, 5))
    hot = torch.nn.functional.one_hot(labels, 5).double()
    objective = -cp.sum(cp.multiply(hot.numpy(), cp.log(z))) + 0.7 * cp.sum_squares(z - x0.numpy())
    solve(cp.Problem(cp.Minimize(objective), [z >= 0, cp.sum(z, axis=1) == 1]))
    close(solvers.simplex_cross_entropy(x0, labels, 0.7), z.value, 1e-5)  # as far as the cone solver goes


@pytest.mark.parametrize("lam", [1e-3, 0.7, 1e3])
@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_simplex_cross_entropy_against_a_bracketed_root(lam: float, scale: float) -> None:
    """The multiplier by Brent's method: 2λz² − (2λx₀ + ν)z − y = 0 in every entry, Σz = 1."""
    x0, labels = scale * randn(20, 6), torch.arange(20) % 6
    hot = np.eye(6)[labels.numpy()]

    def state(level: float, at: np.ndarray, y: np.ndarray) -> np.ndarray:
        c = 2 * lam * at + level
        root = np.sqrt(c**2 + 8 * lam * y)
        return np.where(
            c > 0, (c + root) / (4 * lam), 2 * y / np.where(c > 0, 1.0, np.maximum(root - c, 1e-300))
        )

    expected = []
    for at, y in zip(x0.numpy(), hot, strict=True):
        far = 1e3 * (1 + lam) * (1 + np.abs(at).max())
        level = brentq(lambda v, at=at, y=y: state(v, at, y).sum() - 1, -far, far, xtol=1e-13, rtol=1e-15)
        expected.append(state(level, at, y))
    close(solvers.simplex_cross_entropy(x0, labels, lam), np.array(expected))


@pytest.mark.parametrize("loss", ["mse", "cross_entropy", "free"])
@pytest.mark.parametrize(
    ("kind", "scale"), [("random", 1.0), ("random", 3.0), ("rank-deficient", 1.0), ("badly scaled", 0.01)]
)
def test_joint_states_against_cvxpy(loss: str, kind: str, scale: float) -> None:
    sizes = [4, 6, 5, 3]
    pairs = enumerate(pairwise(sizes))
    weights = [scale * hard_matrix(kind, o, i, seed=k) / i**0.5 for k, (i, o) in pairs]
    biases = [0.3 * randn(o, seed=10 + k) for k, o in enumerate(sizes[1:])]
    x, y, mus = randn(5, 4, seed=5), randn(5, 3, seed=6), [0.7, 0.2]
    if loss == "cross_entropy":
        y = torch.softmax(y, 1)
    states = solvers.joint_x(weights, biases, x, None if loss == "free" else y, mus, loss)
    u = [cp.Variable((5, 6)), cp.Variable((5, 5))]
    below, objective = x.numpy(), 0
    for state, weight, bias, mu in zip(u, weights, biases, mus, strict=False):
        objective = objective + mu * cp.sum_squares(state - below @ weight.numpy().T - bias.numpy()[None])
        below = state
    v = below @ weights[-1].numpy().T + np.tile(biases[-1].numpy(), (5, 1))
    if loss == "mse":
        objective = objective + cp.sum_squares(y.numpy() - v)
    if loss == "cross_entropy":
        objective = objective + cp.sum(cp.log_sum_exp(v, axis=1)) - cp.sum(cp.multiply(y.numpy(), v))
    solve(cp.Problem(cp.Minimize(objective), [s >= 0 for s in u]))
    for state, expected in zip(states, u, strict=True):
        close(state, expected.value)


def test_joint_x_counts_its_layers() -> None:
    with pytest.raises(ValueError, match="1 hidden layers need 2 weights"):
        solvers.joint_x([randn(2, 2)], [randn(2)], randn(3, 2), randn(3, 2), [1.0])
