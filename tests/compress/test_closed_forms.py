"""The closed forms of one layer, against the plain least-squares problems they solve."""

import itertools

import pytest
import torch
from torch import Tensor

from torchlift.compress.grid import (
    Factored,
    coordinate_sweep,
    feedback,
    on_grid,
    steps_for,
    top_level,
)
from torchlift.compress.moments import LayerMoments, add_gram
from torchlift.compress.refit import LeastSquares, bias_for
from torchlift.compress.surgeon import Surgeon, removal_order


def layer(rows: int = 3, columns: int = 6, samples: int = 60, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(columns, columns, generator=generator, dtype=torch.float64)
    x = torch.randn(samples, columns, generator=generator, dtype=torch.float64) @ mix + 0.5
    w = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    return x, x @ w.T + 0.3, w


def problem(x: Tensor, y: Tensor, w: Tensor, *, bias: bool = True, damping: float = 0.01) -> LeastSquares:
    return LeastSquares.of(summed(x, y), w[None], bias=bias, damping=damping)


def summed(x: Tensor, y: Tensor, batches: int = 1) -> LayerMoments:
    moments = LayerMoments.zeros(1, x.shape[1], y.shape[1])
    for some, more in zip(x.chunk(batches), y.chunk(batches), strict=True):
        moments.add(some[None], more[None])
    return moments


def regularized(quadratic: LeastSquares, weight: Tensor) -> float:
    """tr(W H Wᵀ) − 2 tr(W T)."""
    return float((weight @ quadratic.hessian[0] * weight).sum() - 2 * (weight * quadratic.linear[0].mT).sum())


def test_moments_do_not_depend_on_batches_nor_on_their_order() -> None:
    x, y, _ = layer()
    once, turned = summed(x, y), summed(x.flip(0), y.flip(0), batches=7)
    for field in ("xx", "xy", "x", "y", "yy", "count"):
        torch.testing.assert_close(getattr(once, field), getattr(turned, field))


def test_a_wide_gram_in_stripes_is_the_whole_product() -> None:
    x = torch.randn(1, 30, 1030, dtype=torch.float64)
    total = torch.zeros(1, 1030, 1030, dtype=torch.float64)
    add_gram(total, x)
    torch.testing.assert_close(total, x.mT @ x)


@pytest.mark.parametrize("bias", [True, False])
def test_the_refit_is_the_minimum_of_the_ridge_problem(bias: bool) -> None:
    x, y, w = layer()
    seen = x + 0.3 * torch.randn_like(x)
    quadratic = problem(seen, y, w, bias=bias)
    moments = summed(seen, y)
    best = quadratic.solve()[0].requires_grad_()
    shift = bias_for(moments, best.detach()[None])[0] if bias else torch.zeros(3)
    pull = 0.01 / 1.01 * quadratic.hessian[0].diagonal().mean()
    loss = (y - seen @ best.T - shift).square().sum() + pull * (best - w).square().sum()
    (slope,) = torch.autograd.grad(loss, best)
    assert float(slope.abs().max()) < 1e-8 * float(pull)
    misfit = (y - seen @ best.detach().T - shift).square().sum(0)
    torch.testing.assert_close(quadratic.error(best.detach()[None])[0], misfit)


def test_the_refit_of_what_did_not_change_changes_nothing() -> None:
    x, y, w = layer()
    torch.testing.assert_close(problem(x, y, w).solve()[0], w)


@pytest.mark.parametrize("level", [0.0, 7.3])
@pytest.mark.parametrize("columns", [40, 1100])
def test_inputs_that_do_not_vary_leave_the_outputs_as_they_are(level: float, columns: int) -> None:
    """What is left of their Gram matrix is rounding, in double and in single precision."""
    generator = torch.Generator().manual_seed(0)
    x = level * torch.rand(columns, generator=generator).expand(64, -1)
    w = torch.randn(2, columns, generator=generator)
    y = x @ w.T
    best = problem(x, y, w).solve()
    shift = bias_for(summed(x, y), best)[0]
    torch.testing.assert_close((x @ best[0].float().T + shift.float()), y, atol=1e-3, rtol=1e-3)


def without(quadratic: LeastSquares, gone: list[int]) -> tuple[Tensor, float]:
    """Brute force: the best weights whose columns ``gone`` are zero."""
    left = [k for k in range(quadratic.hessian.shape[-1]) if k not in gone]
    weight = torch.zeros_like(quadratic.linear[0].mT)
    weight[:, left] = torch.linalg.solve(quadratic.hessian[0][left][:, left], quadratic.linear[0][left]).mT
    return weight, regularized(quadratic, weight)


def test_cost_and_update_of_a_removed_group_are_those_of_brute_force() -> None:
    x, y, w = layer()
    quadratic = problem(x, y, w)
    columns = torch.tensor([[0, 1], [2, 3], [4, 5]])
    surgeon = Surgeon.of(quadratic, columns)
    surgeon.scale = 1.0
    start = regularized(quadratic, surgeon.weight)
    costs = surgeon.costs(torch.arange(3))
    for channel in range(3):
        _, value = without(quadratic, columns[channel].tolist())
        assert float(costs[channel]) == pytest.approx(value - start, rel=1e-9)
    surgeon.remove(torch.tensor([1]))
    torch.testing.assert_close(surgeon.weight, without(quadratic, [2, 3])[0])
    _, both = without(quadratic, [2, 3, 4, 5])
    assert float(surgeon.costs(torch.tensor([2]))) == pytest.approx(
        both - regularized(quadratic, surgeon.weight), rel=1e-9
    )


def test_channels_go_greedily_by_the_cost_in_all_readers() -> None:
    quadratics = [problem(*layer(seed=seed)) for seed in (1, 2)]
    columns = torch.tensor([[0, -1], [1, 2], [3, -1], [4, 5]])
    readers = [Surgeon.of(q, columns) for q in quadratics]
    scales = [reader.scale for reader in readers]
    order, paid = removal_order(readers, torch.arange(4), 3)
    gone: list[int] = []
    for channel, cost in zip(order.tolist(), paid.tolist(), strict=True):

        def more(other: int, gone: list[int] = gone) -> float:
            added = [k for k in columns[other].tolist() if k >= 0]
            return sum(
                s * (without(q, gone + added)[1] - without(q, gone)[1])
                for q, s in zip(quadratics, scales, strict=True)
            )

        left = [c for c in range(4) if columns[c, 0] not in gone]
        assert channel == min(left, key=more)
        assert cost == pytest.approx(more(channel), rel=1e-8)
        gone += [k for k in columns[channel].tolist() if k >= 0]


def test_the_factor_is_upper_triangular_and_solves() -> None:
    quadratic = problem(*layer())
    factored = Factored.of(quadratic.hessian)
    upper, order = factored.upper[0], factored.order[0]
    torch.testing.assert_close(upper @ upper.T, quadratic.hessian[0][order][:, order])
    assert not upper.tril(-1).any()
    torch.testing.assert_close(factored.solve(quadratic.linear), quadratic.solve())


def test_each_column_of_the_pass_is_made_up_for_as_the_surgeon_would() -> None:
    """After column j is fixed at q_j the rest is arg min of the quadratic given the columns fixed so far."""
    x, y, w = layer()
    quadratic = problem(x, y, w)
    hessian, best = quadratic.hessian[0], quadratic.solve()[0]
    step = steps_for(best[None], 3, hessian.diagonal()[None])[0]
    actual = feedback(best[None], Factored.of(hessian[None]), step=step, bits=3)[0][0]
    value = best.clone()
    order = hessian.diagonal().argsort(descending=True).tolist()
    for count, j in enumerate(order):
        fixed, free = order[: count + 1], order[count + 1 :]
        value[:, j] = step[:, 0] * (value[:, j] / step[:, 0]).round().clamp(-3, 3)
        if free:
            error = (value - best)[:, fixed] @ hessian[fixed][:, free]
            value[:, free] = best[:, free] - error @ torch.linalg.inv(hessian[free][:, free])
    torch.testing.assert_close(actual, value)


def test_blocks_of_columns_change_nothing() -> None:
    x, y, w = layer(rows=2, columns=300, samples=700)
    quadratic = problem(x, y, w)
    (actual,), _ = feedback(
        quadratic.solve(), Factored.of(quadratic.hessian), step=torch.full((2, 1), 0.5), bits=4
    )
    order = quadratic.hessian[0].diagonal().argsort(descending=True)
    upper = torch.linalg.inv(Factored.of(quadratic.hessian).upper[0])
    value = quadratic.solve()[0][:, order].clone()
    for j in range(300):
        q = 0.5 * (value[:, j] / 0.5).round().clamp(-7, 7)
        value[:, j:] -= ((value[:, j] - q) / upper[j, j])[:, None] * upper[j, j:]
        value[:, j] = q
    torch.testing.assert_close(actual[:, order], value)


def test_the_grid_is_near_the_best_of_all_and_better_than_rounding() -> None:
    x, y, w = layer(rows=1, columns=6)
    quadratic = problem(x, y, w)
    hessian, linear, best = quadratic.hessian[0], quadratic.linear[0], quadratic.solve()[0]
    gridded, kept = on_grid(best[None], Factored.of(hessian[None]), linear[None], 3)
    assert bool(kept.all())
    assert float(gridded.levels.abs().max()) <= top_level(3)
    every = torch.tensor(list(itertools.product(range(-3, 4), repeat=6)), dtype=torch.float64)
    top, bottom = every @ linear[:, 0], (every @ hessian * every).sum(1)
    least = float(-(top.clamp(min=0).square() / bottom.clamp(min=1e-12)).max())
    rounded = gridded.step[0] * (best / gridded.step[0]).round().clamp(-3, 3)
    zero = regularized(quadratic, best)
    ours, plain = (regularized(quadratic, value) - zero for value in (gridded.weight[0], rounded))
    assert ours <= plain
    assert ours <= 3 * (least - zero) + 1e-9


def test_steps_are_the_best_of_many_for_their_row() -> None:
    generator = torch.Generator().manual_seed(3)
    w = torch.randn(4, 64, generator=generator, dtype=torch.float64)
    h = torch.rand(64, generator=generator, dtype=torch.float64) + 0.1
    for bits in (2, 3, 4):
        step, top = steps_for(w[None], bits, h[None])[0, :, 0], top_level(bits)
        for row, own in zip(w, step, strict=True):

            def error(s: Tensor, row: Tensor = row, top: int = top) -> float:
                return float((h * (row - s * (row / s).round().clamp(-top, top)).square()).sum())

            best = min(error(s) for s in torch.linspace(0.02, float(row.abs().max()), 2000).double())
            assert error(own) <= 1.02 * best


def test_groups_of_columns_have_steps_of_their_own() -> None:
    x, _, w = layer(columns=64, samples=300)
    w = w * torch.tensor([1.0, 100.0]).repeat_interleave(32)
    quadratic = problem(x, x @ w.T, w)
    args = quadratic.solve(), Factored.of(quadratic.hessian), quadratic.linear, 4
    rows, groups = (on_grid(*args, group=group)[0] for group in (None, 32))
    assert groups.step.shape == (1, 3, 2)
    assert regularized(quadratic, groups.weight[0]) < regularized(quadratic, rows.weight[0])


def test_mask_and_grid_in_one_pass() -> None:
    x, y, w = layer(rows=4, columns=160, samples=400)
    quadratic = problem(x, y, w)
    best = quadratic.solve()
    gridded, kept = on_grid(best, Factored.of(quadratic.hessian), quadratic.linear, 4, sparsity=0.5)
    assert float((~kept).double().mean()) == pytest.approx(0.5, abs=0.01)
    assert not gridded.levels[~kept].any()
    rough = torch.where(best.abs() > best.abs().median(), best, 0.0)
    assert quadratic.relative(gridded.weight) < quadratic.relative(rough)


def test_a_mask_takes_what_costs_least_and_the_rest_makes_up_for_it() -> None:
    """What costs least becomes zero; the columns behind it are the best given all that is fixed."""
    quadratic = problem(*layer(rows=3, columns=8))
    hessian, best = quadratic.hessian[0], quadratic.solve()[0]
    (actual,), (kept,) = feedback(best[None], Factored.of(quadratic.hessian), sparsity=0.5)
    order = hessian.diagonal().argsort(descending=True).tolist()
    value, cost = best.clone(), torch.empty_like(best)
    for count, j in enumerate(order):  # what it costs to take w_j away when only later columns may move
        free = order[count:]
        cost[:, j] = best[:, j].square() / torch.linalg.inv(hessian[free][:, free])[0, 0]
    assert int((~kept).sum()) == 12
    assert float(cost[~kept].max()) <= float(cost[kept].min())
    for count, j in enumerate(order):
        fixed, free = order[: count + 1], order[count + 1 :]
        value[:, j] = torch.where(kept[:, j], value[:, j], 0.0)
        if free:
            error = (value - best)[:, fixed] @ hessian[fixed][:, free]
            value[:, free] = best[:, free] - error @ torch.linalg.inv(hessian[free][:, free])
    torch.testing.assert_close(actual, value)


def test_a_coordinate_sweep_never_loses() -> None:
    x, y, w = layer(rows=3, columns=40, samples=200)
    quadratic = problem(x, y, w)
    hessian, linear = quadratic.hessian, quadratic.linear
    step = steps_for(w[None], 2, hessian[0].diagonal()[None])
    levels = (w / step).round().clamp(-1, 1)
    kept = torch.ones_like(levels, dtype=torch.bool)
    before = regularized(quadratic, (levels * step)[0])
    after = regularized(quadratic, (coordinate_sweep(levels, step, hessian, linear, 2, kept) * step)[0])
    assert after < before


def test_groups_of_a_layer_are_solved_apart() -> None:
    x, y, w = layer()
    z, u, v = layer(seed=5)
    moments = LayerMoments.zeros(2, 6, 3)
    moments.add(torch.stack([x, z]), torch.stack([y, u]))
    both = LeastSquares.of(moments, torch.stack([w, v]), bias=True).solve()
    torch.testing.assert_close(both, torch.stack([w, v]))
