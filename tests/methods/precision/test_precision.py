"""Closed forms of SMOL: grids, s and p, zero precision, clips, prices; noise; what cannot be quantized."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import torchlift as tl
from methods.sparsity.sparse_runs import pruned
from torchlift.core import Node, Stored, Task, constrain, nodes
from torchlift.errors import TorchliftError
from torchlift.lifts import Precision, precision

allocate, bits, logit, to_grid = precision.allocate, precision.bits, precision.logit, precision.to_grid
REAL = st.floats(-3, 3, width=32)


def grid(p: int) -> list[float]:
    """All sums of ±2^(1−j), j = 1, …, p, one by one."""
    return [
        sum(b * 2.0 ** (1 - j) for j, b in enumerate(signs, 1))
        for signs in itertools.product((-1, 1), repeat=p)
    ]


def noisy(weight: torch.Tensor, **options) -> Node:
    return Precision(**options).node(weight)


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


@given(st.lists(REAL, min_size=1, max_size=20), st.integers(1, 8))
def test_to_grid_is_the_nearest_sum_of_signed_bits(values, p):
    w = torch.tensor(values, dtype=torch.float64)
    actual = to_grid(w, p)
    levels = torch.tensor(grid(p), dtype=torch.float64)
    assert all(v in grid(p) for v in actual.tolist())
    assert torch.equal((w - actual).abs(), (w[:, None] - levels).abs().min(1).values)


def test_the_grids_of_the_source():
    assert sorted(grid(1)) == [-1, 1]
    assert sorted(grid(2)) == [-1.5, -0.5, 0.5, 1.5]
    w = torch.tensor([0.2, -7.0, 0.9, 1.01])
    assert to_grid(w, torch.tensor([2, 3, 0, 1])).tolist() == [0.5, -1.75, 0.0, 1.0]


def test_a_value_on_the_grid_says_its_precision():
    values = [v for p in range(1, 9) for v in grid(p)]
    assert len(set(values)) == len(values)
    bits = torch.tensor([q for q in range(1, 9) for _ in grid(q)] + [0])
    record = Stored((128 * torch.tensor([*values, 0.0])).int(), torch.tensor(0.3) / 128)
    assert torch.equal(record.precision, bits.short())


@given(st.floats(1.001, 16))
def test_logit_inverts_bits(p):
    assert bits(logit(p)) == pytest.approx(p, rel=1e-12)
    assert 2 ** (1 - p) == pytest.approx(1 / (1 + math.exp(-logit(p))), rel=1e-12)


def test_logit_of_the_source_and_its_gradient():
    assert logit(8) == pytest.approx(-math.log(127), rel=1e-15)
    assert bits(0.0) == pytest.approx(2.0)
    s = torch.tensor([-5.0, 0.0, 3.0], dtype=torch.float64, requires_grad=True)
    bits(s).sum().backward()
    assert torch.allclose(s.grad, (torch.sigmoid(s) - 1) / math.log(2))


@given(st.lists(REAL, min_size=1, max_size=20), st.integers(1, 8))
def test_zero_precision_where_zero_is_as_near(values, p):
    w = torch.tensor(values, dtype=torch.float64)
    wanted = torch.where(w.abs() <= (w - to_grid(w, p)).abs(), 0, p)
    assert torch.equal(allocate(w, p), wanted)
    q = allocate(w, torch.full(w.shape, p))
    assert bool(((w - to_grid(w, q)).abs() <= (w - to_grid(w, p)).abs()).all())


def test_zero_precision_of_the_source():
    assert allocate(torch.tensor([0.2, 0.25, 0.26]), 2).tolist() == [0, 0, 2]


def test_the_functions_stand_where_the_lift_is():
    assert tl.lifts.precision.to_grid is to_grid
    assert tl.lifts.Precision is tl.lifts.precision.Precision


def test_whole_bits():
    def whole(p: list[float], **options) -> list[int]:
        node = noisy(torch.zeros(1, len(p), dtype=torch.float64), **options)
        with torch.no_grad():
            node.logit.copy_(logit(torch.tensor([p], dtype=torch.float64)))
        return node.whole_bits()[0].tolist()

    p = [1.0001, 1.9, 2.49, 3.51, 7.99999, 40.0]
    assert whole(p, rounding="floor") == [1, 1, 2, 3, 8, 16]
    assert whole(p, rounding="round") == [1, 2, 2, 4, 8, 16]
    assert whole(p, rounding="floor", levels=(1, 2, 4, 8)) == [1, 1, 2, 2, 8, 8]
    assert whole(p, rounding="round", levels=(1, 2, 4, 8)) == [1, 2, 2, 4, 8, 8]
    assert whole([1.2], rounding="floor", levels=(2, 4)) == [2]


def test_weights_are_clipped_to_their_range_after_a_step():
    task = Task(net())
    lifted = Precision(scale=0.5, p_init=3).lift(task)
    node = next(node for _, node in nodes(lifted))
    with torch.no_grad():
        node.weight.fill_(9.0)
        node.weight[0] = -9.0
        node.logit.uniform_(-2, 2)
    constrain(lifted)
    bound = 0.5 * (2 - torch.sigmoid(node.logit))
    assert torch.equal(node.weight[1:], bound[1:])
    assert torch.equal(node.weight[0], -bound[0])


@pytest.mark.parametrize("granularity", ["weight", "block", "channel", "tensor"])
def test_the_price_counts_every_entry(granularity):
    node = noisy(torch.randn(6, 5, 3), granularity=granularity, strength=2.0, size=4)
    with torch.no_grad():
        node.logit.uniform_(-3, 3)
    p = node.over(bits(node.logit)).expand(6, 5, 3)
    assert node.penalty().item() == pytest.approx(2.0 * (p - 1).sum().item(), rel=1e-5)


def test_noise_is_uniform_within_the_limit_and_gone_in_evaluation():
    node = noisy(torch.zeros(200, 500), p_init=3, scale=0.5)
    draw = node().detach()
    assert float(draw.abs().max()) <= 0.5 * 2**-2
    assert float(draw.var()) == pytest.approx((0.5 * 2**-2) ** 2 / 3, rel=0.02)
    assert not torch.equal(draw, node().detach())
    assert torch.equal(node.eval()(), node.weight)


def test_the_gradient_at_a_draw_is_that_of_the_declared_function():
    node = noisy(torch.randn(4, 5, dtype=torch.float64), granularity="channel")
    surrogate = node.surrogate()
    value = node()
    assert torch.equal(value, surrogate())
    seed = torch.randn_like(value)
    for a, b in zip(
        torch.autograd.grad((value * seed).sum(), [node.weight, node.logit]),
        torch.autograd.grad((surrogate() * seed).sum(), [node.weight, node.logit]),
        strict=True,
    ):
        assert torch.equal(a, b)


def test_noise_finds_the_optimal_precision():
    """E (v + cσε − a)²/2 = (v − a)²/2 + c²σ²/6 per weight; with −λ log₂ σ the best σ is √(3λ/ln 2)/c."""
    node = noisy(torch.zeros(400, 1, dtype=torch.float64), granularity="tensor", strength=1e-3, scale=0.5)
    optimizer = torch.optim.Adam(node.parameters(), lr=0.02)
    for step in range(800):
        optimizer.param_groups[0]["lr"] = 0.02 * (1 - step / 800)
        optimizer.zero_grad()
        (0.5 * node().square().sum() + node.penalty()).backward()
        optimizer.step()
    assert torch.sigmoid(node.logit).item() == pytest.approx(math.sqrt(3e-3 / math.log(2)) / 0.5, rel=0.05)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("granularity", ["weight", "block", "channel", "tensor"])
def test_projected_weights_are_scale_times_grid_exactly(dtype, granularity):
    lift = Precision(granularity=granularity, size=4, p_init=5)
    node = lift.node(torch.randn(12, 9).to(dtype))
    with torch.no_grad():
        node.logit.add_(2 * torch.randn_like(node.logit))
        node.constrain()
    projected, p = node.project(), node.precision()
    exact = node.scale.double() * to_grid((node.weight.detach() / node.scale).double(), p)
    assert torch.equal(projected, exact.to(dtype))
    assert (projected - node.weight).abs().max().item() <= float(node.scale) * 2.0 ** (
        1 - int(p[p > 0].min())
    )


def test_the_scale_holds_all_but_a_weight_in_a_thousand():
    for w in (torch.randn(50, 40), torch.randn(50, 40) ** 3, torch.tensor([[0.1, -7.3, 0.0]])):
        scale = float(noisy(w).scale)
        assert float((w.abs() > 2 * scale).float().mean()) <= 1e-3
        assert scale >= 1.999999 * float(w[w != 0].square().mean().sqrt())
    assert noisy(torch.zeros(3, 3)).scale == 1.0


def test_zeros_made_by_pruning_cost_nothing_and_stay():
    task = pruned(Task(net()), 0.7)
    masks = {n: p.detach() != 0 for n, p in task.model.named_parameters() if p.ndim > 1}
    lift = Precision(strength=1.0, zero=False)
    lifted = lift.lift(task)
    alive = sum(int(m.sum()) for m in masks.values())
    assert lifted.penalty().item() == pytest.approx(7.0 * alive, rel=1e-4)
    small = lift.project(lifted)
    for name, mask in masks.items():
        assert torch.equal(small.model.get_parameter(name) != 0, mask)


def test_blocks_of_hardware_bits_are_zero_as_a_whole():
    w = torch.zeros(8, 8)
    w[:4, :4], w[4:, 4:] = 0.01, 1.0
    node = noisy(w, granularity="block", size=4, levels=(1, 2, 4, 8), p_init=5, scale=1.0)
    p = node.precision()
    assert p[:4, :4].unique().tolist() == [0]
    assert p[4:, 4:].unique().tolist() == [4]


def test_a_lift_in_the_users_own_loop():
    task, x, y = Task(net()), torch.randn(32, 6), torch.arange(32) % 3
    lift = Precision(strength=1e-4)
    problem = lift.lift(task)
    optimizer = torch.optim.SGD(tl.groups(problem, {"*": {}}), lr=0.05)
    for _ in range(5):
        optimizer.zero_grad()
        problem((x, y)).backward()
        optimizer.step()
        constrain(problem)
    model = lift.project(problem).model
    assert {n for n, r in tl.stored(model).items() if r.step is not None} == {
        n for n, p in model.named_parameters() if p.ndim > 1
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"p_init": 1}, "starts above 1 bit"),
        ({"p_init": 0.5}, "starts above 1 bit"),
        ({"p_init": 30}, "at most 16 bits"),
        ({"granularity": "layer"}, "granularity 'layer' is not known"),
        ({"rounding": "up"}, "rounding 'up'"),
        ({"strength": -1.0}, "price per bit"),
        ({"scale": 0.0}, "positive number"),
        ({"levels": (0, 3)}, "bits from 1 to 16"),
    ],
)
def test_settings_that_make_no_sense(options, message):
    with pytest.raises(TorchliftError, match=message) as error:
        Precision(**options)
    assert "\n" not in str(error.value)


def bad(change) -> Task:
    model = net()
    change(model)
    return Task(model)


def complex_weight(model):
    model[0].weight = nn.Parameter(torch.randn(8, 6, dtype=torch.complex64))


def integer_weight(model):
    model[0].weight = nn.Parameter(torch.ones(8, 6, dtype=torch.int8), requires_grad=False)


def not_finite(model):
    model[2].weight.data[0, 0] = float("nan")


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (bad(complex_weight), r"cannot reach 0.weight, which is complex: exclude it by where= or skip="),
        (bad(integer_weight), r"0.weight is torch.int8.*skip="),
        (bad(not_finite), r"2.weight is not finite: mend or retrain"),
        (Task(nn.Sequential(nn.BatchNorm1d(6))), r"nothing to quantize: no trainable matrix.*where="),
    ],
)
def test_weights_that_cannot_be_quantized(task, message):
    with pytest.raises(TorchliftError, match=message) as error:
        Precision().lift(task)
    assert "\n" not in str(error.value)
    assert Precision().accepts(task) == str(error.value)
    with pytest.raises(TorchliftError, match="whole number of bits"):
        to_grid(torch.ones(2), -1)


def test_skipped_weights_stay_as_they_are():
    task = bad(complex_weight)
    lifted = Precision(skip="*0.weight").lift(task)
    assert len(list(nodes(lifted))) == 1
