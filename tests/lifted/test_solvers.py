"""Every block solver against an independent one: SciPy, cvxpy, NumPy (float64, 1e-6)."""

from itertools import pairwise

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg, special
from scipy.optimize import brentq, minimize
from scipy.optimize import nnls as scipy_nnls
from torch import Tensor

from torchlift.lifted import activations, penalties, solvers
from torchlift.lifted.solvers.bounds import Bounds
from torchlift.lifted.solvers.quadratic import quadratic

ATOL = 1e-6


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


KINDS = ["random", "rank-deficient", "badly scaled"]


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
@pytest.mark.parametrize(("out", "p"), [(12, 6), (5, 14)])
@pytest.mark.parametrize("method", ["auto", "gradient", "coordinate", "admm", "pivot"])
def test_nnls_against_scipy(kind: str, out: int, p: int, method: str) -> None:
    if method == "coordinate" and kind == "badly scaled" and p > out:
        pytest.skip("cyclic sweeps need more than a million steps here")
    weight, bias = hard_matrix(kind, out, p), randn(out, seed=1)
    u_next, v, mu_next, mu = randn(12, out, seed=2), randn(12, p, seed=3), 1.3, 0.05
    x = solvers.nnls(weight, bias, u_next, v, mu_next, mu, method=method)
    stacked = np.vstack([np.sqrt(mu_next) * weight.numpy(), np.sqrt(mu) * np.eye(p)])
    for row, target, centre in zip(x, u_next - bias, v, strict=True):
        right = np.concatenate([np.sqrt(mu_next) * target.numpy(), np.sqrt(mu) * centre.numpy()])
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
    x = quadratic(h, g, Bounds(lo, hi))
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


@pytest.mark.parametrize("method", ["auto", "gradient", "coordinate", "admm", "pivot"])
@pytest.mark.parametrize("kind", KINDS)
def test_box_least_squares_against_cvxpy(method: str, kind: str) -> None:
    a = hard_matrix(kind, 6, 8)
    h, g = a.mT @ a + 0.1 * torch.eye(8, dtype=torch.float64), 3 * randn(10, 8, seed=1)
    lo, hi = torch.full((8,), -0.3, dtype=torch.float64), torch.full((8,), 0.8, dtype=torch.float64)
    x = quadratic(h, g, Bounds(lo, hi), method=method)
    close(x, cvx_rows(h, g, lambda z: [z >= -0.3, z <= 0.8]))


@pytest.mark.parametrize("method", ["auto", "gradient", "admm", "pivot"])
@pytest.mark.parametrize("kind", KINDS[:2])
def test_simplex_least_squares_against_cvxpy(method: str, kind: str) -> None:
    a = hard_matrix(kind, 6, 8)
    h, g = a.mT @ a + 0.1 * torch.eye(8, dtype=torch.float64), 3 * randn(10, 8, seed=1)
    zero, far = torch.zeros(8, dtype=torch.float64), torch.full((8,), torch.inf, dtype=torch.float64)
    x = quadratic(h, g, Bounds(zero, far, total=1.0), method=method)
    close(x, cvx_rows(h, g, lambda z: [z >= 0, cp.sum(z, axis=1) == 1]))


@pytest.mark.parametrize("method", ["auto", "pivot"])
def test_badly_scaled_simplex_least_squares_meet_their_conditions(method: str) -> None:
    """Hx − g + ν is 0 where x > 0 and not negative elsewhere; no cone solver goes that far here."""
    a = hard_matrix("badly scaled", 6, 8)
    h, g = a.mT @ a + 0.1 * torch.eye(8, dtype=torch.float64), 3 * randn(10, 8, seed=1)
    zero, far = torch.zeros(8, dtype=torch.float64), torch.full((8,), torch.inf, dtype=torch.float64)
    x = quadratic(h, g, Bounds(zero, far, total=1.0), method=method)
    slope = x @ h - g
    level = slope.gather(1, x.argmax(1, keepdim=True))
    size = x @ h.abs() + g.abs() + level.abs()
    assert x.min() >= 0
    assert (x.sum(1) - 1).abs().max() < 1e-9
    assert (((slope - level).abs() / size)[x > 0]).max() < ATOL
    assert ((slope - level) / size).min() > -ATOL


def test_the_algorithms_refuse_what_they_cannot_do() -> None:
    h, g = torch.eye(3, dtype=torch.float64), randn(2, 3)
    bounds = Bounds(torch.zeros(3).double(), torch.ones(3).double(), total=1.0)
    with pytest.raises(ValueError, match="keeps to boxes"):
        quadratic(h, g, bounds, method="coordinate")
    with pytest.raises(ValueError, match="no algorithm 'newton'"):
        quadratic(h, g, bounds, method="newton")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no box or simplex domain"):
        solvers.nnls(h, g[0], g, g, 1.0, 1.0, activation="sigmoid")


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
    found = minimize(objective, np.zeros(3 * (p + 1)), jac=True, method="BFGS", options=options)
    expected = found.x.reshape(3, p + 1) * unit
    close(weight, expected[:, :-1])
    shift = expected[:, -1] - expected[:, -1].mean() if name == "softmax" else expected[:, -1]
    close(bias - bias.mean() if name == "softmax" else bias, shift)


REGULARISERS = [solvers.L1(0.6), solvers.GroupLasso(0.8), solvers.Nuclear(1.5)]
INSTANCES = [("random", 20, 6), ("rank-deficient", 20, 6), ("random", 5, 9), ("badly scaled", 20, 6)]


@pytest.mark.parametrize(
    ("regulariser", "kind", "m", "p"),
    [
        (regulariser, *instance)
        for regulariser in REGULARISERS
        for instance in INSTANCES
        if regulariser.by_column or instance[0] != "badly scaled"  # singular values have no scale per input
    ],
    ids=repr,
)
def test_non_smooth_weights_against_cvxpy(
    regulariser: solvers.Regulariser, kind: str, m: int, p: int
) -> None:
    a, u = hard_matrix(kind, m, p), randn(m, 3, seed=1).clamp(min=0)
    penalty = penalties.Bregman(activations.get("relu"))
    theta = solvers.regularised_weights(
        a, u, penalty, 0.9, regulariser, torch.zeros(3, p + 1).double(), rule=solvers.Exact(1e-13, 100_000)
    )
    w, b = cp.Variable((3, p)), cp.Variable((1, 3))
    v = a.numpy() @ w.T + np.ones((m, 1)) @ b
    strength = regulariser.strength  # type: ignore[attr-defined]
    norm = {
        solvers.L1: lambda: cp.sum(cp.abs(w)),
        solvers.GroupLasso: lambda: cp.sum(cp.norm(w, axis=0)),
        solvers.Nuclear: lambda: cp.normNuc(w),
    }[type(regulariser)]()
    fit = cp.sum_squares(cp.pos(v)) / 2 - cp.sum(cp.multiply(u.numpy(), v))
    problem = cp.Problem(cp.Minimize(0.9 * fit + strength * norm))
    solve(problem)
    mine = a @ theta[:, :-1].mT + theta[:, -1]
    value = 0.9 * (mine.clamp(min=0).square().sum() / 2 - (u * mine).sum()) + regulariser.value(theta[:, :-1])
    assert float(value) == pytest.approx(problem.value, rel=ATOL)
    if kind == "random" and m > p:  # elsewhere the minimiser need not be unique
        atol = 1e-5 if isinstance(regulariser, solvers.Nuclear) else ATOL
        close(theta[:, :-1], w.value, atol)
        close(theta[:, -1], b.value[0], atol)


def test_orthogonal_weights_solve_procrustes() -> None:
    a, u = randn(30, 5), randn(30, 5, seed=1)
    penalty = penalties.Bregman(activations.get("linear"))
    start = torch.cat([solvers.ridge(a, u, 1.0, 1.0)[0], torch.zeros(5, 1).double()], 1)
    theta = solvers.regularised_weights(
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
    found = float((a @ theta[:, :-1].mT - u).square().sum())
    eye = torch.eye(5, dtype=torch.float64)
    assert (theta[:, :-1] @ theta[:, :-1].mT - eye).abs().max() < 1e-12
    assert found == pytest.approx(best, rel=1e-6)


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
