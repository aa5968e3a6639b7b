"""Bregman state and weight blocks against cvxpy and SciPy."""

import cvxpy as cp
import numpy as np
import pytest
import torch
from scipy import special
from scipy.optimize import minimize
from solving import ATOL, KINDS, close, hard_matrix, randn, solve

from torchlift.methods.lifted import activations, penalties, solvers


def potential(name: str, x: cp.Variable) -> cp.Expression:
    """f of the spec's table, for cvxpy."""
    return {
        "relu": lambda: cp.sum_squares(x) / 2,
        "hard_tanh": lambda: cp.sum_squares(x) / 2,
        "soft_threshold": lambda: cp.sum_squares(x) / 2 + 0.3 * cp.sum(cp.abs(x)),
        "sigmoid": lambda: -cp.sum(cp.entr(x)) - cp.sum(cp.entr(1 - x)),
        "tanh": lambda: -cp.sum(cp.entr(1 + x) + cp.entr(1 - x)) / 2,
        "softmax": lambda: -cp.sum(cp.entr(x)),
    }[name]()


def conjugate(name: str, v: cp.Expression) -> cp.Expression:
    """f* of the spec's table, for cvxpy."""
    return {
        "relu": lambda: cp.sum_squares(cp.pos(v)) / 2,
        "linear": lambda: cp.sum_squares(v) / 2,
        "sigmoid": lambda: cp.sum(cp.logistic(v)),
        "softmax": lambda: cp.sum(cp.log_sum_exp(v, axis=1)),
    }[name]()


DOMAINS = {
    "relu": lambda x: [x >= 0],
    "hard_tanh": lambda x: [x >= -1, x <= 1],
    "softmax": lambda x: [cp.sum(x, axis=1) == 1],
}


STATES = [
    *[(name, "relu", "random", 9) for name in ("relu", "hard_tanh", "soft_threshold", "sigmoid", "tanh")],
    *[(name, above, "rank-deficient", 6) for name in ("relu", "sigmoid") for above in ("relu", "softmax")],
    *[(name, "relu", "badly scaled", 9) for name in ("relu", "hard_tanh", "soft_threshold", "sigmoid")],
    ("softmax", "sigmoid", "random", 3),
    ("relu", "linear", "random", 3),
    ("tanh", "softmax", "random", 9),
]


@pytest.mark.parametrize(("name", "above", "kind", "out"), STATES)
def test_bregman_states_against_cvxpy(name: str, above: str, kind: str, out: int) -> None:
    """The X-step f(x) − ⟨x, v⟩ + μ₊[f₊*(Wx + b) − ⟨u₊, Wx + b⟩] by proximal gradients."""
    act, upper = activations.get(name, **({"t": 0.3} if name == "soft_threshold" else {})), above
    weight, bias, v = hard_matrix(kind, out, 6), 0.3 * randn(out, seed=1), randn(4, 6, seed=2)
    weight = weight * 0.003 if kind == "badly scaled" else weight  # inputs weigh from 1e-7 to 1e2
    state = activations.get(upper)(randn(4, out, seed=3))
    layer = solvers.Above(
        penalties.Bregman(activations.get(upper)),
        1.7,
        state,
        lambda x: x @ weight.mT + bias,
        lambda y: y @ weight,
        float(torch.linalg.matrix_norm(weight, 2)),
    )
    block = solvers.StateBlock(penalties.Bregman(act), 0.6, v, layer).block()
    x = solvers.Exact(1e-12, 50_000)(block, act(v))
    z = cp.Variable((4, 6))
    w = z @ weight.numpy().T + np.tile(bias.numpy(), (4, 1))
    here = 0.6 * (potential(name, z) - cp.sum(cp.multiply(v.numpy(), z)))
    there = 1.7 * (conjugate(above, w) - cp.sum(cp.multiply(state.numpy(), w)))
    problem = cp.Problem(cp.Minimize(here + there), DOMAINS.get(name, lambda _: [])(z))
    solve(problem)
    smooth = name in ("relu", "hard_tanh", "soft_threshold") and above in ("relu", "linear")
    close(x, z.value, ATOL if smooth else 1e-5)  # as far as the cone solver goes with logarithms
    offset = float(0.6 * act.conjugate(v).sum() + 1.7 * activations.get(upper).potential(state).sum())
    assert float(block.value(x)) == pytest.approx(problem.value + offset, abs=1e-6)


@pytest.mark.parametrize("name", ["relu", "sigmoid", "softmax", "tanh"])
@pytest.mark.parametrize(
    ("kind", "m", "p"), [*[(kind, 60, 5) for kind in KINDS], ("random", 8, 12), ("rank-deficient", 8, 12)]
)
def test_bregman_weights_against_scipy(name: str, kind: str, m: int, p: int) -> None:
    """The W-step is a GLM: ½(v₊)² − uv, softplus(v) − uv, logsumexp(v) − uv, log cosh(v) − uv."""
    act = activations.get(name)
    a, u, rho = hard_matrix(kind, m, p), act(2 * randn(m, 3, seed=1)), 0.05
    penalty = penalties.Bregman(act)
    exact = solvers.Exact(tolerance=1e-12, steps=100_000)
    weight, bias = solvers.glm(a, u, penalty, 0.8, rho, rule=exact)
    conjugate = {
        "relu": lambda v: np.square(v.clip(min=0)).sum() / 2,
        "sigmoid": lambda v: np.logaddexp(v, 0).sum(),
        "softmax": lambda v: special.logsumexp(v, axis=1).sum(),
        "tanh": lambda v: np.log(np.cosh(v)).sum(),
    }[name]
    slope = {
        "relu": lambda v: v.clip(min=0),
        "sigmoid": special.expit,
        "softmax": lambda v: special.softmax(v, axis=1),
        "tanh": np.tanh,
    }[name]
    rows, target = np.hstack([a.numpy(), np.ones((m, 1))]), u.numpy()
    ridge = np.append(np.full(p, rho), 0.0)
    unit = 1 / np.sqrt(np.square(rows).sum(0) + ridge)  # the reference works in coordinates of one scale

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        theta = flat.reshape(3, p + 1) * unit
        v = rows @ theta.T
        value = 0.8 * (conjugate(v) - (target * v).sum()) + (ridge * theta**2).sum()
        return value, ((0.8 * (slope(v) - target).T @ rows + 2 * ridge * theta) * unit).ravel()

    options = {"gtol": 1e-11, "maxiter": 10**5}
    actual = minimize(objective, np.zeros(3 * (p + 1)), jac=True, method="BFGS", options=options)
    expected = actual.x.reshape(3, p + 1) * unit
    close(weight, expected[:, :-1])
    shift = expected[:, -1] - expected[:, -1].mean() if name == "softmax" else expected[:, -1]
    close(bias - bias.mean() if name == "softmax" else bias, shift)
