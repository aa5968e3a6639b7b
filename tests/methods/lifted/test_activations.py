"""The laws every activation must satisfy, and the closed forms of each."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import spence
from torch import Tensor

from torchlift.methods.lifted import activations

ELEMENTWISE = {
    "linear": {},
    "relu": {},
    "leaky_relu": {"slope": 0.2},
    "elu": {"alpha": 0.7},
    "clip": {"lo": -0.5, "hi": 2.0},
    "hard_tanh": {},
    "relu6": {},
    "hardsigmoid": {},
    "sigmoid": {},
    "tanh": {},
    "soft_threshold": {"t": 0.7},
    "nonneg_soft_threshold": {"t": 0.7},
    "softplus": {},
}
VECTOR = {"simplex": {}, "softmax": {}, "group_soft_threshold": {"t": 0.7}}
PROXIMAL = {**ELEMENTWISE, **VECTOR}
EVERY = {**PROXIMAL, "sign": {}}
CURVED = ["sigmoid", "tanh", "softplus"]


def make(name: str) -> activations.Activation:
    return activations.get(name, **EVERY[name])


def points(seed: int, scale: float = 3.0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    u, v = torch.randn(2, 64, 5, generator=generator, dtype=torch.float64).mul(scale).to(dtype)
    return u, v


@pytest.mark.parametrize("name", EVERY)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([0.1, 3.0, 30.0]))
@settings(deadline=None, max_examples=10)
def test_the_penalty_is_the_fenchel_young_gap(name: str, seed: int, scale: float) -> None:
    act = make(name)
    u, v = points(seed, scale)
    u = act.project(u)
    inner = (u * v).sum(-1) if act.vector else u * v
    gap = act.potential(u) + act.conjugate(v) - inner
    size = 1 + act.potential(u).abs() + act.conjugate(v).abs() + inner.abs()
    assert ((act.penalty(u, v) - gap).abs() / size).max() < 1e-13
    assert act.penalty(u, v).min() >= 0


@pytest.mark.parametrize("name", PROXIMAL)
@given(seed=st.integers(0, 10**6))
@settings(deadline=None, max_examples=10)
def test_the_penalty_bounds_the_distance_and_vanishes_at_the_activation(name: str, seed: int) -> None:
    act = make(name)
    u, v = points(seed)
    u = act.project(u)
    square = (u - act(v)).square() / 2 / act.lipschitz
    distance = square.sum(-1) if act.vector else square
    assert (act.penalty(u, v) - distance).min() > -1e-12
    assert act.penalty(act(v), v).abs().max() < 1e-12


@pytest.mark.parametrize("name", EVERY)
@given(seed=st.integers(0, 10**6), share=st.floats(0.05, 0.95))
@settings(deadline=None, max_examples=10)
def test_the_penalty_is_convex_in_either_argument(name: str, seed: int, share: float) -> None:
    act = make(name)
    (u, v), (other_u, other_v) = points(seed), points(seed + 1)
    u, other_u = act.project(u), act.project(other_u)
    between_u = act.project(share * u + (1 - share) * other_u)  # rounding may leave a domain
    chord_u = share * act.penalty(u, v) + (1 - share) * act.penalty(other_u, v)
    chord_v = share * act.penalty(u, v) + (1 - share) * act.penalty(u, other_v)
    assert (act.penalty(between_u, v) - chord_u).max() < 1e-9
    assert (act.penalty(u, share * v + (1 - share) * other_v) - chord_v).max() < 1e-9


@pytest.mark.parametrize("name", PROXIMAL)
def test_gradients_are_those_of_the_penalty(name: str) -> None:
    act = make(name)
    u, v = points(1)
    inner = act(u)  # relative interior, where f is differentiable
    v.requires_grad_()
    (grad_v,) = torch.autograd.grad(act.penalty(inner, v).sum(), v)
    assert (grad_v - act.grad_v(inner, v)).abs().max() < 1e-9
    free = inner.clone().requires_grad_()
    (grad_u,) = torch.autograd.grad((act.potential(free)).sum(), free)
    v = v.detach()
    smooth = {"relu": inner > 0, "nonneg_soft_threshold": inner > 0, "soft_threshold": inner != 0}
    where = smooth.get(name, torch.ones_like(inner, dtype=torch.bool)) & inner.isfinite()
    if name == "group_soft_threshold":
        where = where & (inner.norm(dim=-1, keepdim=True) > 0)
    if name == "softmax":
        where = where & (inner > 1e-12)
    difference = (grad_u - v - act.grad_u(inner, v))[where]
    assert difference.abs().max() < 1e-7 * (1 + grad_u[where].abs().max())


@pytest.mark.parametrize("name", PROXIMAL)
@given(seed=st.integers(0, 10**6))
@settings(deadline=None, max_examples=10)
def test_the_lipschitz_constant_holds(name: str, seed: int) -> None:
    act = make(name)
    v, w = points(seed, 1.0)
    ratio = (act(v) - act(w)).norm(dim=-1) / (v - w).norm(dim=-1)
    assert ratio.max() <= act.lipschitz * (1 + 1e-9)


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "sigmoid", "tanh", "softplus", "hardsigmoid"])
def test_the_lipschitz_constant_is_attained(name: str) -> None:
    act = make(name)
    v = torch.linspace(-30, 30, 6001, dtype=torch.float64)
    slope = (act(v[1:]) - act(v[:-1])) / (v[1:] - v[:-1])
    assert slope.max() == pytest.approx(act.lipschitz, rel=1e-4)


@pytest.mark.parametrize("name", EVERY)
def test_sigma_maximizes_the_conjugate(name: str) -> None:
    """f*(v) = max over u of ⟨u, v⟩ − f(u), at u = σ(v)."""
    act = make(name)
    u, v = points(2)
    u = act.project(u)

    def gain(x: Tensor) -> Tensor:
        inner = (x * v).sum(-1) if act.vector else x * v
        return inner - act.potential(x)

    at_sigma = gain(act(v))
    assert (at_sigma - act.conjugate(v)).abs().max() < 1e-9
    assert (gain(u) - at_sigma).max() < 1e-9


@pytest.mark.parametrize("mu", [1e-3, 0.3, 1.0, 50.0])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_prox_against_scalar_minimization(name: str, mu: float) -> None:
    act = make(name)
    w = torch.tensor([-4.0, -0.8, -0.1, 0.05, 0.6, 3.0], dtype=torch.float64)
    x = act.prox(w, mu)
    assert torch.equal(act.project(x), x)

    def objective(z: float, center: float) -> float:
        value = float(act.potential(torch.tensor(z, dtype=torch.float64)))
        return 0.5 * (z - center) ** 2 + mu * value if math.isfinite(value) else 1e12

    low, high = (float(act.project(torch.tensor(b, dtype=torch.float64))) for b in (-9.0, 9.0))
    for value, center in zip(x.tolist(), w.tolist(), strict=True):
        best = minimize_scalar(lambda z, c=center: objective(z, c), bounds=(low, high), method="bounded")
        assert objective(value, center) <= best.fun + 1e-10
        assert value == pytest.approx(best.x, abs=2e-4)


@pytest.mark.parametrize("mu", [1e-6, 1e-2, 1.0, 100.0])
@pytest.mark.parametrize("name", CURVED)
def test_smooth_prox_solves_its_equation(name: str, mu: float) -> None:
    """X + μ f'(x) = w wherever f' is finite; μ as a tensor broadcasts."""
    act = make(name)
    w = torch.linspace(-2, 3, 101, dtype=torch.float64)
    x = act.prox(w, torch.tensor(mu, dtype=torch.float64))
    inside = (act.grad_potential(x).abs() < 30) & (x > 1e-9 if name == "softplus" else x.abs() < 1 - 1e-9)
    assert inside.any()
    assert (x + mu * act.grad_potential(x) - w)[inside].abs().max() < 1e-7
    assert x.diff().min() >= 0


@pytest.mark.parametrize("mu", [1e-4, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("name", VECTOR)
def test_vector_prox_is_optimal(name: str, mu: float) -> None:
    """No feasible point does better: the objective is compared at many perturbations."""
    act = make(name)
    w, other = points(3)
    x = act.prox(w, mu)

    def objective(z: Tensor) -> Tensor:
        return (z - w).square().sum(-1) / 2 + mu * act.potential(z)

    for step in (1e-3, 0.1, 1.0):
        rival = act.project(x + step * (other - x))
        assert (objective(x) - objective(rival)).max() < 1e-9
    if name == "softmax":
        level = torch.where(x > 1e-250, x + mu * x.log() - w, torch.nan)
        best = level.gather(-1, x.argmax(-1, keepdim=True))
        assert (level - best).nan_to_num(0.0).abs().max() < 1e-9


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", EVERY)
def test_extreme_arguments_stay_finite(name: str, dtype: torch.dtype) -> None:
    act = make(name)
    v = torch.tensor([[-80.0, -79.0, 0.0, 40.0, 80.0]], dtype=dtype)
    u = act.project(v)
    for value in (act(v), act.conjugate(v), act.penalty(u, v), act.prox(v, 0.5), act.grad_v(u, v)):
        assert value.dtype == dtype
        assert value.isfinite().all()
    assert act.penalty(act(v), v).abs().max() < (1e-2 if dtype == torch.float32 else 1e-10)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("relu", -0.1),
        ("clip", 2.1),
        ("sigmoid", 1.1),
        ("tanh", -1.1),
        ("softplus", -0.1),
        ("hardsigmoid", 1.1),
        ("sign", 1.1),
        ("nonneg_soft_threshold", -0.1),
        ("simplex", 0.5),
        ("softmax", 0.5),
    ],
)
def test_outside_the_domain_is_infinite(name: str, bad: float) -> None:
    act = make(name)
    u = torch.full((3,), bad, dtype=torch.float64)
    assert act.potential(u).isinf().all()
    assert act.penalty(u, torch.zeros_like(u)).isinf().all()


def test_torch_modules_agree() -> None:
    v = torch.linspace(-8, 8, 101, dtype=torch.float64)
    pairs = {
        "relu": torch.nn.ReLU(),
        "relu6": torch.nn.ReLU6(),
        "hard_tanh": torch.nn.Hardtanh(),
        "hardsigmoid": torch.nn.Hardsigmoid(),
        "softplus": torch.nn.Softplus(),
        "sigmoid": torch.nn.Sigmoid(),
        "tanh": torch.nn.Tanh(),
        "softmax": torch.nn.Softmax(-1),
    }
    for name, module in pairs.items():
        assert torch.allclose(activations.get(name)(v), module(v), atol=1e-12)
    assert torch.allclose(activations.get("leaky_relu", slope=0.3)(v), torch.nn.LeakyReLU(0.3)(v))
    assert torch.allclose(activations.get("soft_threshold", t=0.4)(v), torch.nn.Softshrink(0.4)(v))


def test_cross_entropy_is_the_softmax_penalty() -> None:
    _, v = points(4)
    labels = torch.arange(len(v)) % 5
    hot = torch.nn.functional.one_hot(labels, 5).double()
    expected = torch.nn.functional.cross_entropy(v, labels, reduction="none")
    assert torch.allclose(activations.get("softmax").penalty(hot, v), expected)


def test_the_dilogarithm_of_softplus_against_scipy() -> None:
    """f(u) = u²/2 + Li₂(e^−u) − π²/6 and f*(v) = −Li₂(−e^v), with Li₂(x) = spence(1 − x)."""
    softplus = activations.get("softplus")
    v, u = torch.linspace(-50, 30, 2001).double(), torch.linspace(1e-3, 40, 2001).double()
    conjugate = -torch.from_numpy(spence(1 + v.exp().numpy()))
    assert torch.allclose(softplus.conjugate(v), conjugate, rtol=1e-12, atol=1e-14)
    potential = u.square() / 2 + torch.from_numpy(spence(-torch.expm1(-u).numpy())) - math.pi**2 / 6
    assert torch.allclose(softplus.potential(u), potential, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("size", [0.1, 5.0, 40.0])
def test_the_proximal_map_of_softmax_meets_its_conditions(size: float) -> None:
    """x + μ log x = w − ν with Σ x = 1, whatever the size of w."""
    w = size * torch.randn(200, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = activations.get("softmax").prox(w, 0.7)
    assert torch.allclose(x.sum(1), torch.ones(200).double(), atol=1e-12)
    nu = w - x - 0.7 * x.log()
    assert torch.allclose(nu, nu.mean(1, keepdim=True).expand_as(nu), rtol=0, atol=1e-9 * max(1.0, size))


def test_max_pool_divergence_has_the_maximum_as_only_minimizer() -> None:
    x = torch.tensor([0.3, -1.0, 0.9], dtype=torch.float64)
    z = torch.linspace(-2, 2, 4001, dtype=torch.float64)
    value = activations.max_divergence(x.expand(len(z), 3), z, beta=1.5)
    assert z[value.argmin()] == pytest.approx(0.9, abs=1e-3)
    assert (value <= value.min() + 1e-4).sum() == 1
    with pytest.raises(ValueError, match="beta must exceed 1"):
        activations.max_divergence(x.expand(len(z), 3), z, beta=1.0)
    z = torch.tensor(0.1, dtype=torch.float64)
    copies = x.clone().requires_grad_(), z.clone().requires_grad_()
    expected = torch.autograd.grad(activations.max_divergence(*copies), copies)
    assert all(
        torch.equal(a, b) for a, b in zip(activations.max_divergence_gradient(x, z), expected, strict=True)
    )


def test_names_and_bad_requests() -> None:
    assert set(EVERY) == set(activations.names())
    relu = activations.get("relu")
    assert activations.get(relu) is relu
    with pytest.raises(ValueError, match="no activation 'gelu'; known: linear, relu"):
        activations.get("gelu")
    with pytest.raises(TypeError, match="relu"):
        activations.get("relu", slope=1)
    with pytest.raises(ValueError, match="slope must lie in"):
        activations.get("leaky_relu", slope=-1.0)
    with pytest.raises(ValueError, match="lo must be below hi"):
        activations.get("clip", lo=1.0, hi=0.0)
    with pytest.raises(ValueError, match="threshold t"):
        activations.get("soft_threshold", t=-1.0)
