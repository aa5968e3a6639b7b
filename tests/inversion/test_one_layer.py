"""One layer backward: against a conic solver, against theory, and its own statements about itself."""

import cvxpy as cp
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import torchlift as tl
from torchlift.inversion import RangeWarning

F64 = torch.float64
ACTIVATIONS = {
    "linear": {},
    "relu": {},
    "sigmoid": {},
    "hard_tanh": {},
    "leaky_relu": {"slope": 0.2},
    "soft_threshold": {"t": 0.1},
}


def layer(n: int, m: int, name: str, seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(n, m), tl.lifted.Act(name, **ACTIVATIONS[name])).double()
    with torch.no_grad():
        model[0].weight.normal_(std=n**-0.5)
        model[0].bias.normal_(std=0.1)
    return model


def scene(shape: tuple[int, ...], count: int) -> Tensor:
    x = torch.zeros(count, *shape, dtype=F64)
    x[..., 2:5] = 1.0
    return x * torch.linspace(1, 0.5, count, dtype=F64).reshape(-1, *[1] * len(shape))


def noisy(model: nn.Sequential, x: Tensor, level: float = 0.02) -> Tensor:
    with torch.no_grad():
        y = model(x.flatten(1))
        return tl.lifted.activations.get(model[1].activation).project(y + level * torch.randn_like(y))


def conic_conjugate(name: str, v: cp.Expression) -> cp.Expression:
    """Σ f*(v), written for cvxpy from the table of formulas, not from our code."""
    half = lambda e: cp.sum_squares(e) / 2
    match name:
        case "linear":
            return half(v)
        case "relu":
            return half(cp.pos(v))
        case "sigmoid":
            return cp.sum(cp.logistic(v))
        case "hard_tanh":
            return cp.sum(cp.huber(v)) / 2
        case "leaky_relu":
            return half(cp.pos(v)) + 0.2 * half(cp.neg(v))
        case _:
            return half(cp.pos(cp.abs(v) - 0.1))


def potential(name: str, y: np.ndarray) -> float:
    if name == "sigmoid":
        return float(np.sum(y * np.log(y) + (1 - y) * np.log(1 - y)))
    if name == "leaky_relu":
        return float(np.sum(np.where(y >= 0, y**2 / 2, y**2 / 0.4)))
    return float(np.sum(y**2 / 2) + (0.1 * np.sum(np.abs(y)) if name == "soft_threshold" else 0))


def conic(
    model: nn.Sequential, name: str, y: Tensor, reg: str, alpha: float, shape: tuple[int, ...]
) -> float:
    """The optimal value of one sample by Clarabel."""
    w, b, data = (t.detach().numpy() for t in (model[0].weight, model[0].bias, y))
    u = cp.Variable(shape)
    v = w @ cp.reshape(u, (int(np.prod(shape)),), order="C") + b
    if reg == "l1":
        penalty = cp.sum(cp.abs(u))
    elif len(shape) == 1:
        penalty = cp.sum(cp.abs(cp.diff(u)))
    else:
        down = cp.vstack([u[1:] - u[:-1], np.zeros((1, shape[1]))])
        right = cp.hstack([u[:, 1:] - u[:, :-1], np.zeros((shape[0], 1))])
        both = cp.vstack([cp.vec(down, order="C"), cp.vec(right, order="C")])
        penalty = cp.sum(cp.norm(both, 2, axis=0)) if reg == "tv" else cp.sum(cp.abs(both))
    objective = potential(name, data) + conic_conjugate(name, v) - data @ v + alpha * penalty
    problem = cp.Problem(cp.Minimize(objective))
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    return float(problem.value)


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")  # of the last digits asked for
@pytest.mark.parametrize(
    ("name", "reg", "shape"),
    [
        *((name, "tv", (6, 6)) for name in ACTIVATIONS),
        *(
            (name, reg, shape)
            for name in ("relu", "hard_tanh")
            for reg, shape in (("tv", (12,)), ("l1", (12,)), ("l1", (6, 6)), ("tv1", (6, 6)))
        ),
    ],
)
def test_agrees_with_a_conic_solver(name: str, reg: str, shape: tuple[int, ...]) -> None:
    n = int(np.prod(shape))
    model = layer(n, n, name, seed=n + len(name))
    y = noisy(model, scene(shape, 2))
    kinds = {"tv": tl.convex.TV(0.05), "tv1": tl.convex.TV(0.05, isotropic=False), "l1": tl.convex.L1(0.05)}
    actual = tl.invert(model, y, reg=kinds[reg], shape=shape, tol=1e-7, progress=False)
    best = sum(conic(model, name, row, reg, 0.05, shape) for row in y)
    assert actual.converged
    assert actual.x.shape == (2, *shape)
    assert actual.objective == pytest.approx(best, rel=1e-6)
    assert actual.objective - best <= actual.gap + 1e-9  # the gap is a bound


@pytest.mark.parametrize("reg", [tl.convex.TV(0.05), tl.convex.L1(0.05), tl.convex.Wavelets(0.05)])
@pytest.mark.parametrize("box", [None, (0.0, 0.9)])
def test_both_solvers_agree(reg: tl.convex.Function, box: tuple[float, float] | None) -> None:
    model = layer(16, 12, "relu", 3)
    y = noisy(model, scene((4, 4), 2))
    actual = {
        m: tl.invert(
            model, y, reg=reg, shape=(4, 4), box=box, method=m, tol=1e-7, max_iter=60_000, progress=False
        )
        for m in ("auto", "pdhg")
    }
    assert all(one.converged for one in actual.values())
    assert actual["pdhg"].method == "pdhg"
    assert actual["auto"].method == ("pdhg" if box and isinstance(reg, tl.convex.Wavelets) else "fista")
    assert actual["auto"].objective == pytest.approx(actual["pdhg"].objective, rel=2e-6)
    if box is not None:
        assert actual["auto"].x.min() >= 0
        assert actual["auto"].x.max() <= 0.9


@pytest.mark.parametrize("box", [None, (0.0, 1.0), (-1.0, 0.9)])
@pytest.mark.parametrize("reg", [tl.convex.TV(0.05), tl.convex.L1(0.05), tl.convex.L2(0.05)])
def test_the_gap_bounds_the_distance_to_the_minimum_everywhere(reg: tl.convex.Function, box: object) -> None:
    """Stopped early, objective − minimum is still below the gap that is stated."""
    model = layer(20, 15, "relu", 5)
    y = noisy(model, scene((20,), 1))
    run = lambda **limits: tl.invert(model, y, reg=reg, box=box, progress=False, **limits)
    best = run(tol=1e-9)
    for steps in (1, 5, 30):
        early = run(max_iter=steps, tol=1e-12)
        assert not early.converged
        assert early.objective - best.objective <= early.gap * (1 + 1e-9) + 1e-9


def test_the_noise_theorem() -> None:
    """α = √2 δ/‖v⁺‖, Wᵀv⁺ = u⁺ with v⁺ on active units: ½‖u − u⁺‖² ≤ 2√2 ‖v⁺‖ δ, at least like δ."""
    model = layer(20, 40, "relu", 7)
    w, b = model[0].weight.detach(), model[0].bias.detach()
    source = torch.randn(40, dtype=F64).abs()
    truth = w.mT @ source
    for _ in range(200):  # a source on units that are on at W Wᵀv + b
        active = w @ truth + b > 0.05
        source = torch.where(active, source, 0.0)
        truth = w.mT @ source
    active = w @ truth + b > 0
    assert bool((source[~active] == 0).all())
    clean = (w @ truth + b).clamp(min=0)
    direction = torch.where(active, torch.randn(40, dtype=F64), 0.0)
    errors, deltas = [], []
    for level in (1e-2, 1e-3, 1e-4):
        y = (clean + level * direction).clamp(min=0)
        delta = float((y - clean).norm()) / 2**0.5  # B = ½‖y − clean‖² on active units
        alpha = 2**0.5 * delta / float(source.norm())
        x = tl.invert(model, y[None], reg=tl.convex.L2(alpha), tol=1e-10, progress=False).x[0]
        error = float((x - truth).square().sum()) / 2
        assert error <= 2 * 2**0.5 * float(source.norm()) * delta
        errors.append(error)
        deltas.append(delta)
    rate = np.polyfit(np.log(deltas), np.log(errors), 1)[0]
    assert rate >= 1.0


def test_a_source_on_inactive_units_keeps_its_error() -> None:
    """The theorem's scope: where u⁺ needs units that are off, less noise does not help."""
    w = torch.eye(2, dtype=F64)
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU()).double()
    with torch.no_grad():
        model[0].weight.copy_(w)
        model[0].bias.zero_()
    truth = torch.tensor([[1.0, -1.0]], dtype=F64)
    for alpha in (1e-2, 1e-4):
        x = tl.invert(model, model(truth).detach(), reg=tl.convex.L2(alpha), progress=False).x
        assert float((x - truth)[0, 1].abs()) > 0.99


def test_alpha_by_the_discrepancy_principle() -> None:
    model = layer(16, 24, "relu", 2)
    x = scene((4, 4), 3)
    y = noisy(model, x, 0.05)
    exact = model[1].activation.penalty(y, model[0](x.flatten(1)).detach())
    delta = float(exact.sum() / len(y)) ** 0.5
    actual = tl.invert(model, y, reg=tl.convex.TV(1.0), shape=(4, 4), noise=delta, progress=False)
    assert actual.fidelity <= len(y) * delta**2 * (1 + 1e-3)
    more = tl.invert(model, y, reg=tl.convex.TV(1.05 * actual.alpha), shape=(4, 4), progress=False)
    assert more.fidelity > len(y) * delta**2  # the largest such alpha
    for noise, words in ((1e-4, "no alpha reaches"), (100.0, "too large for this y")):
        with pytest.raises(tl.TorchliftError, match=words):
            tl.invert(model, y, reg=tl.convex.TV(1.0), shape=(4, 4), noise=noise, progress=False)


def test_alpha_from_the_l_curve_is_near_the_best() -> None:
    model = layer(16, 20, "linear", 4)
    x = scene((16,), 1)
    y = noisy(model, x, 0.05)
    find = lambda **options: tl.invert(model, y, reg=tl.convex.TV(0.05), progress=False, tol=1e-4, **options)
    error = lambda actual: float((actual.x - x).norm())
    best = min(error(find(alpha=10**k)) for k in (-3, -2.5, -2, -1.5, -1))
    assert error(find(alpha="l-curve")) <= 3 * best


def test_values_outside_the_range_are_projected_and_told() -> None:
    model = layer(5, 6, "relu", 0)
    y = torch.tensor([[0.5, -0.3, 0.2, 0.0, -0.1, 1.0]], dtype=F64)
    with pytest.warns(RangeWarning, match=r"2 of 6 values .* relu|2 of 6 values"):
        actual = tl.invert(model, y, reg=tl.convex.L2(0.1), progress=False)
    again = tl.invert(model, y.clamp(min=0), reg=tl.convex.L2(0.1), progress=False)
    torch.testing.assert_close(actual.x, again.x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_precision_and_batches(dtype: torch.dtype) -> None:
    model = layer(12, 15, "relu", 1).to(dtype)
    y = noisy(model.double(), scene((12,), 4)).to(dtype)
    model = model.to(dtype)
    whole = tl.invert(model, y, reg=tl.convex.TV(0.02), progress=False)
    alone = torch.cat([tl.invert(model, row[None], reg=tl.convex.TV(0.02), progress=False).x for row in y])
    assert whole.x.dtype == dtype
    assert whole.converged
    torch.testing.assert_close(whole.x, alone, rtol=0, atol=2e-2 if dtype == torch.float32 else 5e-3)


class Prior:
    """An object as deepinv's priors are: fn(x, *args) per sample, prox(x, *args, gamma=…)."""

    def fn(self, x: Tensor, *args: object) -> Tensor:
        return x.reshape(len(x), -1).abs().sum(1)

    def prox(self, x: Tensor, *args: object, gamma: float = 1.0) -> Tensor:
        return x.sign() * (x.abs() - gamma).clamp(min=0)


class Total(Prior):
    """One number for the whole batch."""

    def fn(self, x: Tensor, *args: object) -> Tensor:
        return x.abs().sum()


@pytest.mark.parametrize("prior", [Prior(), Total()])
def test_any_object_with_fn_and_prox(prior: Prior) -> None:
    model = layer(12, 15, "relu", 1)
    y = noisy(model, scene((12,), 2))
    ours = tl.invert(model, y, reg=tl.convex.L1(0.05), tol=1e-8, progress=False)
    theirs = tl.invert(model, y, reg=prior, alpha=0.05, tol=1e-8, progress=False)
    assert theirs.alpha == 0.05
    assert theirs.objective == pytest.approx(ours.objective, rel=1e-6)


def test_the_name_is_a_function_whatever_was_imported_first() -> None:
    import torchlift.inversion

    assert callable(tl.invert)
    assert tl.invert is torchlift.inversion.invert
    assert tl.lifted.TV is tl.convex.TV
