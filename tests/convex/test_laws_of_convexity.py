"""Adjoint, Moreau and Fenchel–Young, for every operator, function and activation."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from torchlift import convex, testing
from torchlift.convex import activations, functions
from torchlift.convex import operators as ops

F64 = torch.float64


def draw(shape: tuple[int, ...], seed: int, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def conv(stride: int = 1, padding: int = 0, dilation: int = 1, groups: int = 1) -> ops.Operator:
    weight = draw((4, 2 // groups, 3, 3), 1)
    pair = (stride, stride), (padding, padding), (dilation, dilation)
    return ops.Convolution(weight, (2, 9, 8), *pair, groups)


OPERATORS: dict[str, tuple[ops.Operator, tuple[int, ...]]] = {
    "identity": (ops.Identity(), (5,)),
    "reshape": (ops.Reshape((6,), (2, 3)), (6,)),
    "differences 1-D": (ops.Differences(1), (7,)),
    "differences 2-D": (ops.Differences(2), (5, 6)),
    "differences color": (ops.Differences(2), (3, 5, 6)),
    "differences one pixel": (ops.Differences(2), (1, 4)),
    "dense": (ops.Dense(draw((4, 6), 0)), (6,)),
    "conv": (conv(), (2, 9, 8)),
    "conv stride padding": (conv(2, 1), (2, 9, 8)),
    "conv dilation": (conv(1, 2, 2), (2, 9, 8)),
    "conv groups": (conv(2, 1, 1, 2), (2, 9, 8)),
    "pool": (ops.AveragePool((3, 6, 7), (2, 3), (2, 2)), (3, 6, 7)),
    "scale": (ops.Scale(draw((3, 1, 1), 2)), (3, 4, 4)),
    "gaussian blur": (ops.Blur(ops.gaussian_kernel(1.0)), (2, 9, 8)),
    "motion blur": (ops.Blur(ops.motion_kernel(5, 30.0)), (9, 8)),
    "random mask": (ops.Mask(ops.random_mask((9, 8), 0.5)), (9, 8)),
    "box mask": (ops.Mask(ops.box_mask((9, 8), (2, 5), (3, 6))), (2, 9, 8)),
    "haar": (functions.WaveletTransform("haar", 2, 1), (8,)),
    "db2": (functions.WaveletTransform("db2", 1, 2), (8, 4)),
    "db4": (functions.WaveletTransform("db4", 1, 2), (3, 8, 16)),
    "composition": (ops.compose(ops.Blur(ops.gaussian_kernel(0.8)), ops.Differences(2)), (7, 6)),
}


@pytest.mark.parametrize("name", OPERATORS)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 3))
@settings(deadline=None, max_examples=8)
def test_adjoints(name: str, seed: int, count: int) -> None:
    operator, shape = OPERATORS[name]
    testing.adjoint(operator, draw((count, *shape), seed), seed=seed + 1)


@pytest.mark.parametrize("name", OPERATORS)
def test_norms_are_tight_from_above(name: str) -> None:
    """Against the singular values of the dense matrix; a blur's bound is the sum of its kernel."""
    operator, shape = OPERATORS[name]
    size = torch.Size(shape).numel()
    columns = operator.A(torch.eye(size, dtype=F64).reshape(size, *shape)).reshape(size, -1)
    true = float(torch.linalg.matrix_norm(columns, 2))
    assert true * (1 - 1e-9) <= operator.norm(draw((1, *shape), 0)) <= 1.25 * true + 1e-9


FUNCTIONS: dict[str, tuple[functions.Function, tuple[int, ...]]] = {
    "zero": (functions.Zero(), (5,)),
    "l1": (convex.L1(0.7), (5, 2)),
    "l2": (convex.L2(0.7), (5, 2)),
    "box": (convex.Box(-0.5, 0.8), (6,)),
    "half box": (convex.Box(0.0, float("inf")), (6,)),
    "boxed l1": (functions.Boxed(convex.L1(0.4), convex.Box(-0.5, 2.0)), (6,)),
    "boxed l1, 0 outside": (functions.Boxed(convex.L1(0.4), convex.Box(0.5, 2.0)), (6,)),
    "non-negative l1": (functions.Boxed(convex.L1(0.4), convex.Box(0.0, float("inf"))), (6,)),
    "boxed l2": (functions.Boxed(convex.L2(0.4), convex.Box(-0.5, 1.0)), (6,)),
    "group l1": (functions.GroupL1(0.6, (1,)), (3, 4)),
    "no groups": (functions.GroupL1(0.6), (3, 4)),
    "tv 1-D": (convex.TV(0.3), (12,)),
    "tv": (convex.TV(0.3), (5, 4)),
    "tv anisotropic": (convex.TV(0.3, isotropic=False), (5, 4)),
    "tv color": (convex.TV(0.3), (2, 4, 3)),
    "tv colors apart": (convex.TV(0.3, coupled=False), (2, 4, 3)),
    "tv anisotropic color": (convex.TV(0.3, isotropic=False), (2, 4, 3)),
    "haar": (convex.Wavelets(0.3), (8,)),
    "haar 2-D": (convex.Wavelets(0.3), (8, 4)),
    "db2": (convex.Wavelets(0.3, "db2", levels=1), (3, 8, 8)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@given(
    seed=st.integers(0, 10**6),
    gamma=st.sampled_from([0.1, 1.0, 5.0]),
    scale=st.sampled_from([0.1, 1.0, 10.0]),
)
@settings(deadline=None, max_examples=4)
def test_moreau(name: str, seed: int, gamma: float, scale: float) -> None:
    function, shape = FUNCTIONS[name]
    testing.moreau(function, draw((2, *shape), seed, scale), gamma, seed=seed)


ACTIVATIONS = {
    **{key: {} for key in activations.names()},
    "leaky_relu": {"slope": 0.2},
    "soft_threshold": {"t": 0.4},
    "clip": {"lo": -0.5, "hi": 2.0},
}


@pytest.mark.parametrize("name", ACTIVATIONS)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([0.1, 3.0]))
@settings(deadline=None, max_examples=8)
def test_fenchel_young(name: str, seed: int, scale: float) -> None:
    activation = activations.get(name, **ACTIVATIONS[name])
    testing.fenchel_young(activation, draw((16, 4), seed, scale), draw((16, 4), seed + 1, scale))


class WrongAdjoint(ops.Differences):
    def A_adjoint(self, y: torch.Tensor) -> torch.Tensor:
        return -super().A_adjoint(y)


class WrongProx(convex.L1):
    def prox(self, x: torch.Tensor, gamma: float | torch.Tensor = 1.0) -> torch.Tensor:
        return super().prox(x, 2 * gamma)


class Foreign:
    """Somebody's prior, L1, but with a prox that forgets γ."""

    def fn(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1).abs().sum(1)

    def prox(self, x: torch.Tensor, gamma: float = 1.0) -> torch.Tensor:
        return x.sign() * (x.abs() - 1).clamp(min=0)


class WrongActivation(activations.Tanh):
    def penalty(self, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return super().penalty(u, v) + 1e-3


def test_the_laws_catch_what_is_wrong() -> None:
    x = draw((2, 6, 5), 0)
    with pytest.raises(AssertionError, match="Aᵀy"):
        testing.adjoint(WrongAdjoint(2), x)
    with pytest.raises(AssertionError, match="⟨"):
        testing.moreau(WrongProx(0.5), x)
    with pytest.raises(AssertionError, match="by"):
        testing.moreau(Foreign(), x, 0.3)
    with pytest.raises(AssertionError, match="B"):
        testing.fenchel_young(WrongActivation(), x, x)


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Linear(6, 4), (6,)),
        (nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2), (2, 9, 8)),
        (nn.AvgPool2d(3, 2, padding=1), (2, 9, 8)),
        (nn.AdaptiveAvgPool2d((2, 4)), (2, 6, 8)),
        (nn.Flatten(), (2, 3, 4)),
        (nn.Unflatten(1, (2, 3)), (6,)),
        (nn.BatchNorm2d(3).eval(), (3, 4, 4)),
        (nn.AdaptiveAvgPool2d(3), (1, 8, 8)),
        (nn.AvgPool2d(3, padding=1, count_include_pad=False), (1, 8, 8)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_modules_as_affine_maps(module: nn.Module, shape: tuple[int, ...]) -> None:
    module = module.double()
    if isinstance(module, nn.BatchNorm2d):
        module.running_mean.normal_()
        module.weight.data.normal_()
    x = draw((3, *shape), 5)
    actual = ops.affine(module, shape, x)
    torch.testing.assert_close(actual(x), module(x))
    testing.adjoint(actual.linear, x)


def test_cosines_solve_the_laplacian() -> None:
    for operator, shape in ((ops.Differences(1), (7,)), (ops.Differences(2), (5, 6))):
        r = draw((2, *shape), 3)
        z = operator.solve(r)
        mean = r.flatten(1).mean(1).reshape(-1, *[1] * len(shape))
        torch.testing.assert_close(operator.A_adjoint(operator.A(z)), r - mean)


def test_bad_functions_and_operators_raise() -> None:
    for make, words in (
        (lambda: convex.TV(0.0), "alpha"),
        (lambda: convex.L1(-1.0), "alpha"),
        (lambda: convex.L2(float("nan")), "alpha"),
        (lambda: convex.Box(1.0, 0.0), "below"),
        (lambda: convex.Wavelets(1.0, "db99"), "db99"),
        (lambda: convex.Wavelets(1.0).prox(draw((1, 7), 0)), "levels"),
        (lambda: convex.TV(1.0).fn(draw((1, 2, 2, 2, 2), 0)), "dimensions"),
        (lambda: ops.Blur(draw((4, 4), 0)), "odd"),
        (lambda: ops.motion_kernel(4), "odd"),
        (lambda: ops.Reshape((3,), (4,)), "entries"),
        (lambda: functions.as_function(3), "fn and prox"),
        (lambda: functions.as_function(convex.TV), "fn and prox"),
    ):
        with pytest.raises(ValueError, match=words):
            make()


@pytest.mark.parametrize("kernel", [ops.gaussian_kernel(1.0, 2), ops.motion_kernel(5, 30.0), draw((3, 5), 1)])
def test_blurs_can_be_differentiated_once_and_twice(kernel: torch.Tensor) -> None:
    """Their own gradient (the kernel turned round) against finite differences and against torch's."""
    blur = ops.Blur(kernel.double())
    x = draw((2, 7, 6), 0).requires_grad_()
    torch.autograd.gradcheck(blur.A, (x,))
    torch.autograd.gradgradcheck(lambda z: blur.A(z).square(), (x,))
    slope = draw((2, 7, 6), 2)
    _, pull = torch.func.vjp(blur.A, x.detach())
    torch.testing.assert_close(pull(slope)[0], blur.A_adjoint(slope))
