"""Critical lifting: the same outputs, critical points stay critical, and back again."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from cases import case
from torchlift import analyze
from torchlift.core import Task, anneal, chain
from torchlift.errors import NeedsFitError, OrderError, SelectionError, TorchliftError
from torchlift.lifts import CriticalLayer
from torchlift.methods.depth.factor import factors, fit_inside
from torchlift.methods.depth.segments import exact, nearly
from torchlift.testing.steps import parameter_count, projected

STRAIGHT = [
    nn.ReLU(), nn.LeakyReLU(0.1), nn.ELU(), nn.CELU(), nn.SELU(), nn.Hardtanh(), nn.ReLU6(), nn.Hardsigmoid(),
    nn.Hardswish(), nn.Hardshrink(), nn.Softshrink(), nn.Threshold(0.1, 2.0), nn.RReLU(),
]  # fmt: skip
SMOOTH = [nn.Tanh(), nn.Sigmoid(), nn.GELU(), nn.SiLU(), nn.Mish(), nn.Softplus(), nn.Softsign()]
GAP = {torch.float32: 1e-5, torch.float64: 1e-10}


def name(value: object) -> str:
    return type(value).__name__ if isinstance(value, nn.Module) else str(value)


def network(activation: nn.Module, dtype: torch.dtype = torch.float64) -> tuple[Task, Tensor]:
    model = nn.Sequential(nn.Linear(5, 8), activation, nn.Linear(8, 6), activation, nn.Linear(6, 3))
    return Task(model.to(dtype).eval(), "mse"), torch.randn(100, 5, dtype=dtype)


def critical(activation: nn.Module, seed: int = 0) -> tuple[Task, tuple[Tensor, Tensor]]:
    """A network at an exact critical point with residuals: y = f(x) + r, r orthogonal to the Jacobian."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(1, 2), activation, nn.Linear(2, 1)).double()
    x = torch.linspace(-2, 2, 40, dtype=torch.float64).unsqueeze(1)
    slopes = [torch.autograd.grad(row, list(model.parameters()), retain_graph=True) for row in model(x)]
    jacobian = torch.stack([torch.cat([slope.flatten() for slope in row]) for row in slopes])
    noise = torch.randn(40, dtype=torch.float64)
    basis, sizes, _ = torch.linalg.svd(jacobian, full_matrices=False)
    basis = basis[:, sizes > 1e-14 * sizes[0]]
    residual = noise - basis @ (basis.T @ noise)
    return Task(model, "mse"), (x, (model(x).squeeze() + residual).unsqueeze(1).detach())


def gradient(task: nn.Module, batch: tuple[Tensor, Tensor]) -> float:
    slopes = torch.autograd.grad(task(batch), list(task.parameters()))
    return max(float(slope.abs().max()) for slope in slopes)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("seed", [None, 0])
@pytest.mark.parametrize("activation", STRAIGHT, ids=name)
@pytest.mark.parametrize("dtype", GAP, ids=str)
def test_outputs_are_kept_and_come_back(
    activation: nn.Module, dtype: torch.dtype, seed: int | None, residual: bool
) -> None:
    task, x = network(activation, dtype)
    for after in ("0", "2", "4", "*"):
        lift = CriticalLayer(after, x, residual=residual, seed=seed)
        deep = lift.lift(task)
        assert lift.gap(task, deep) <= GAP[dtype], after
        assert lift.gap(task, lift.project(deep)) <= 1e-6, after


@pytest.mark.parametrize("activation", SMOOTH, ids=name)
def test_smooth_activations_are_as_near_as_asked(activation: nn.Module) -> None:
    task, x = network(activation)
    gaps = [
        CriticalLayer("2", x, tolerance=t).gap(task, CriticalLayer("2", x, tolerance=t).lift(task))
        for t in (1e-2, 1e-4, 1e-6)
    ]
    size = float(task.predict(x).detach().abs().max())
    assert all(gap <= 10 * size * t for gap, t in zip(gaps, (1e-2, 1e-4, 1e-6), strict=True))
    assert gaps[0] > gaps[1] > gaps[2]


@pytest.mark.parametrize("activation", [*STRAIGHT, *SMOOTH], ids=name)
def test_segments_are_where_the_activation_is_straight(activation: nn.Module) -> None:
    tolerance = 1e-4
    for piece in exact(activation) or nearly(activation, tolerance):
        low = piece.low if math.isfinite(piece.low) else piece.high - 50
        high = piece.high if math.isfinite(piece.high) else piece.low + 50
        z = torch.linspace(low, high, 203, dtype=torch.float64)[1:-1]
        off = (activation.eval()(z) - (piece.slope * z + piece.offset)).abs().max()
        allowed = piece.error * ((high - low) / 2 if piece.bounded else 1.0)
        assert float(off) <= max(allowed, 1e-12)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 4), st.one_of(st.none(), st.integers(0, 99)))
def test_factors_multiply_to_the_weight(m: int, n: int, extra: int, seed: int | None) -> None:
    weight = torch.randn(m, n, dtype=torch.float64)
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    outer, inner = factors(weight, min(m, n) + extra, generator)
    torch.testing.assert_close(outer @ inner, weight)
    rank = min(m, n)
    assert not outer[:, rank:].any(), "nothing comes out of more neurons"
    assert inner[rank:].any() == (seed is not None and extra > 0)


@given(
    st.floats(-1e3, 1e3),
    st.floats(0, 1e3),
    st.sampled_from([(0.0, torch.inf), (-torch.inf, 0.0), (-1.0, 1.0), (0.0, 6.0)]),
)
def test_every_input_lands_inside_its_piece(low: float, length: float, piece: tuple[float, float]) -> None:
    ends = [torch.tensor([v], dtype=torch.float64) for v in (low, low + length, *piece)]
    scale, shift = fit_inside(*ends, margin=0.5)
    for z in (low, low + length / 2, low + length):
        assert piece[0] < float(scale * z + shift) < piece[1]


def test_too_narrow_a_layer_raises() -> None:
    task, x = network(nn.ReLU())
    with pytest.raises(TorchliftError, match=r"at least min\(6, 8\) = 6"):
        CriticalLayer("2", x, width=5).lift(task)


@pytest.mark.parametrize("width", [6, 8, 20])
def test_wider_layers_keep_the_outputs(width: int) -> None:
    task, x = network(nn.ReLU())
    lift = CriticalLayer("2", x, width=width)
    deep = lift.lift(task)
    assert deep.body().get_submodule("2.inner").out_features == width
    assert lift.gap(task, deep) <= 1e-10
    assert analyze.is_lifted(deep, task, x)


def test_constant_inputs_are_no_trouble() -> None:
    task, _ = network(nn.ReLU())
    x = torch.ones(7, 5, dtype=torch.float64)
    for lift in (CriticalLayer("*", x), CriticalLayer("*", x, residual=True)):
        deep = lift.lift(task)
        assert lift.gap(task, deep) <= 1e-10
        assert lift.gap(task, lift.project(deep)) <= 1e-10
        assert analyze.is_lifted(deep, task, x)


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.ELU(), nn.LeakyReLU()], ids=name)
@pytest.mark.parametrize("residual", [False, True])
def test_critical_points_stay_critical(activation: nn.Module, residual: bool) -> None:
    for seed in range(3):
        task, batch = critical(activation, seed)
        assert gradient(task, batch) < 1e-12
        assert task(batch).item() > 0.1, "not just an interpolation"
        for after in ("0", "2", "*"):
            deep = CriticalLayer(after, batch[0], residual=residual, seed=seed).lift(task)
            assert gradient(deep, batch) < 1e-9
            assert deep(batch).item() == pytest.approx(task(batch).item(), rel=1e-12)


def test_seeds_pick_different_members_of_the_manifold() -> None:
    task, x = network(nn.ReLU())
    members = [CriticalLayer("2", x, seed=seed).lift(task) for seed in (None, 0, 1)]
    weights = [deep.body().get_submodule("2.inner").weight for deep in members]
    assert not torch.allclose(weights[0], weights[1])
    assert not torch.allclose(weights[1], weights[2])
    assert all(analyze.is_lifted(deep, task, x) for deep in members)


def test_convolutions_channel_by_channel() -> None:
    layers = [
        nn.Conv2d(3, 6, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(6, 40, 3, 2),
        nn.ReLU(),
        nn.Conv2d(40, 4, 1),
    ]
    task = Task(nn.Sequential(*layers, nn.Flatten(), nn.Linear(36, 3)))
    x = torch.randn(20, 3, 8, 8)
    for lift in (
        CriticalLayer("0", x),
        CriticalLayer("2", x, width=50),
        CriticalLayer("[24]", x, residual=True),
    ):
        deep = lift.lift(task)
        assert lift.gap(task, deep) <= 1e-5
        assert lift.gap(task, lift.project(deep)) <= 1e-6
        assert analyze.is_lifted(deep, task, x)


def test_several_layers_by_chaining() -> None:
    task, x = network(nn.ELU())
    lifts = chain(CriticalLayer("2", x), CriticalLayer("2.outer", x, seed=1), CriticalLayer("0", x))
    deep = lifts.lift(task)
    assert analyze.lifting(deep, task, x).inserted == (
        "0.inner",
        "0.outer",
        "2.inner",
        "2.outer.inner",
        "2.outer.outer",
    )
    assert analyze.is_lifted(deep, task, x)
    back = lifts.project(deep)
    torch.testing.assert_close(back.predict(x), task.predict(x))


def test_training_and_coming_back_while_linear_is_exact() -> None:
    task, x = network(nn.ReLU())
    y = torch.randn(100, 3, dtype=torch.float64)
    lift = CriticalLayer("2", x)
    deep = lift.lift(task)
    optimizer = torch.optim.SGD(deep.parameters(), lr=1e-2)
    for _ in range(20):
        deep((x, y)).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert deep((x, y)).item() < task((x, y)).item()
    assert analyze.linearity(deep, x)["2.inner"] == pytest.approx(1, abs=1e-12)
    torch.testing.assert_close(lift.project(deep).predict(x), deep.predict(x), rtol=0, atol=1e-10)


def test_a_faded_layer_comes_back_exactly_wherever_it_went() -> None:
    task, x = network(nn.Tanh())
    y = 3 * torch.randn(100, 3, dtype=torch.float64)
    lift = CriticalLayer("2", x, tolerance=0.1, fade=True)
    deep = lift.lift(task)
    optimizer = torch.optim.Adam(deep.parameters(), lr=0.05)
    for step in range(50):
        anneal(deep, step / 49)
        deep((x, y)).backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.testing.assert_close(lift.project(deep).predict(x), deep.predict(x), rtol=0, atol=1e-10)


def test_without_data_it_says_what_it_needs() -> None:
    task, x = network(nn.ReLU())
    with pytest.raises(NeedsFitError, match="pass x=, or call lift"):
        CriticalLayer("2").lift(task)
    with pytest.raises(OrderError, match="no node"):
        CriticalLayer("2", x).project(task)


@pytest.mark.parametrize(
    ("layer", "options", "reason"),
    [
        (nn.Bilinear(4, 4, 4), {}, "not a Linear or a convolution"),
        (nn.Conv2d(4, 4, 3, groups=2), {"residual": True}, "groups=2"),
        (nn.Conv1d(4, 4, 3, padding="same"), {"residual": True}, "border"),
        (nn.Conv2d(4, 4, 3, padding=1), {"residual": True}, "border"),
        (nn.Linear(4, 4), {"residual": True, "width": 9}, "as wide as its input"),
    ],
)
def test_what_cannot_be_lifted_raises(layer: nn.Module, options: dict[str, object], reason: str) -> None:
    with pytest.raises(SelectionError, match=reason):
        CriticalLayer("0", torch.zeros(2, 4), **options).lift(Task(nn.Sequential(layer, nn.ReLU()), "mse"))


def test_an_activation_must_be_straight_somewhere() -> None:
    class Square(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * x

    task, x = network(Square())
    with pytest.raises(TorchliftError, match="found no activation"):
        CriticalLayer("2", x).lift(task)
    with pytest.raises(TorchliftError, match="Square has no known straight piece"):
        CriticalLayer("2", x, activation=Square()).lift(task)


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 5), st.integers(1, 5))
def test_any_network_any_seed(seed: int, a: int, b: int, c: int) -> None:
    torch.manual_seed(seed)
    task = Task(nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Linear(b, c)).double(), "mse")
    x = torch.randn(9, a, dtype=torch.float64)
    lift = CriticalLayer("*", x, seed=seed)
    assert lift.gap(task, lift.lift(task)) <= 1e-10
    assert analyze.is_lifted(lift.lift(task), task, x)


def test_layers_read_past_their_call_raise() -> None:
    model = nn.Sequential(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), nn.ReLU())
    with pytest.raises(SelectionError, match="without calling it"):
        CriticalLayer("0.linear1", torch.randn(2, 3, 4)).lift(Task(model, "mse"))


def test_a_layer_nobody_calls_is_named() -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x).relu()

    with pytest.raises(SelectionError, match="'idle' is never called"):
        CriticalLayer("idle", torch.randn(2, 4)).lift(Task(Idle(), "mse"))


LAYERS = {
    "linear": (lambda: nn.Linear(4, 6, bias=False), (4,)),
    "1-D": (lambda: nn.Conv1d(4, 6, 3, padding=1), (4, 7)),
    "2-D, no bias, groups": (lambda: nn.Conv2d(4, 6, 3, stride=2, groups=2, bias=False), (4, 7, 7)),
    "2-D, depthwise": (lambda: nn.Conv2d(4, 4, 3, padding=1, groups=4), (4, 5, 5)),
    "3-D": (lambda: nn.Conv3d(4, 3, 2, bias=False), (4, 3, 3, 3)),
}


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("kind", LAYERS)
def test_layers_without_bias_in_groups_and_of_any_dimension_are_lifted(kind: str, seed: int | None) -> None:
    make, shape = LAYERS[kind]
    torch.manual_seed(0)
    layer = make().double()
    task = Task(nn.Sequential(layer, nn.ReLU()), "mse")
    x = torch.randn(40, *shape, dtype=torch.float64)
    lift = CriticalLayer("0", x, seed=seed)
    deep = lift.lift(task)
    assert lift.gap(task, deep) < 1e-9
    assert sum(1 for _ in deep.parameters()) == 4
    back = lift.project(deep)
    assert lift.gap(task, back) < 1e-9
    merged = back.model[0]
    assert type(merged) is type(layer)
    assert (merged.bias is None) == (layer.bias is None)
    with torch.no_grad():  # a bias that was learnt is kept
        deep.get_submodule("model.0.outer").bias.add_(0.5)
    moved = lift.project(deep).model[0]
    torch.testing.assert_close(moved(x), layer(x) + 0.5)


@pytest.mark.parametrize("kind", ["mlp", "conv", "tied", "vit", "attention"])
def test_layers_with_a_bias_come_back_as_they_were(kind: str) -> None:
    lift, task, batch = case("critical layer", kind)
    small = projected(lift, task, batch)
    assert [type(module) for module in small.modules()] == [type(module) for module in task.modules()]
    shapes = [[(n, p.shape) for n, p in one.state_dict().items()] for one in (small, task)]
    assert shapes[0] == shapes[1]
    assert parameter_count(small) == parameter_count(task)


def test_a_bias_free_convolution_before_a_norm_stays_critical() -> None:
    """A constant before batch norm changes nothing: the gradient of the new bias vanishes."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv1d(2, 2, 1, bias=False), nn.BatchNorm1d(2), nn.ReLU(), nn.Flatten(), nn.Linear(6, 1)
    )
    task = Task(model.double(), "mse")
    x, y = torch.randn(30, 2, 3, dtype=torch.float64), torch.randn(30, 1, dtype=torch.float64)
    deep = CriticalLayer("0", x, activation=nn.ReLU()).lift(task)
    loss = deep.train()((x, y))
    (slope,) = torch.autograd.grad(loss, [deep.get_submodule("model.0.outer").bias])
    assert float(slope.abs().max()) < 1e-12


@pytest.mark.parametrize("seed", [0, 1])
def test_general_members_are_critical_too(seed: int) -> None:
    task, batch = critical(nn.ReLU())
    lift = CriticalLayer("2", batch[0], width=4, seed=seed)
    deep = lift.lift(task)
    assert gradient(task, batch) < 1e-9
    assert gradient(deep, batch) < 1e-8
    inner = deep.get_submodule("model.2.inner").weight
    assert not torch.allclose(
        inner @ inner.T, torch.eye(len(inner), dtype=inner.dtype) * (inner @ inner.T)[0, 0]
    )
