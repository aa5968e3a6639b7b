import math

import pytest
import torch
from torch import nn

import torchlift as tl
from torchlift.analyze import complexity, critical_sample_ratio, cycles, rkhs_norm
from torchlift.core import Task
from torchlift.errors import TorchliftError

PHASES = ("base", "lifted", "project")


def kernel(x, h):
    return torch.exp(-torch.cdist(x, x).square() / (2 * h**2))


def test_norm_of_a_function_in_the_span_is_its_coefficients_quadratic_form():
    """f = Σ a_i k(·, c_i) has |f|² = aᵀ K a, and interpolation at the centers finds exactly that."""
    torch.manual_seed(0)
    centers, a = torch.rand(6, 3, dtype=torch.float64), torch.randn(6, 2, dtype=torch.float64)
    k = kernel(centers, 0.3)
    expected = math.sqrt(float((a.T @ k @ a).trace()))
    assert rkhs_norm(centers, k @ a, bandwidth=0.3, jitter=1e-12) == pytest.approx(expected, rel=1e-6)


def test_more_points_raise_the_bound_but_never_above_the_norm():
    torch.manual_seed(0)
    centers, a = torch.rand(3, 2, dtype=torch.float64), torch.randn(3, 1, dtype=torch.float64)
    norm = math.sqrt(float(a.T @ kernel(centers, 0.5) @ a))
    x = torch.rand(40, 2, dtype=torch.float64)
    values = torch.exp(-torch.cdist(x, centers).square() / 0.5) @ a
    actual = [rkhs_norm(x[:n], values[:n], bandwidth=0.5, jitter=1e-10) for n in (5, 15, 40)]
    assert actual[0] < actual[1] <= actual[2] <= norm * (1 + 1e-4)


def test_rougher_functions_have_larger_norms_and_scaling_scales():
    x = torch.rand(200, 1, dtype=torch.float64)
    norms = [rkhs_norm(x, torch.sin(w * x), bandwidth=0.2) for w in (1.0, 5.0, 20.0)]
    assert norms[0] < norms[1] < norms[2]
    assert rkhs_norm(x, 3 * torch.sin(x), bandwidth=0.2) == pytest.approx(3 * norms[0], rel=1e-6)


def test_chunks_average_the_squares():
    x, y = torch.rand(25, 2), torch.rand(25, 1)
    parts = [rkhs_norm(x[i : i + 10], y[i : i + 10], bandwidth=0.5) ** 2 for i in (0, 10)]
    assert rkhs_norm(x, y, bandwidth=0.5, limit=10) == pytest.approx(math.sqrt(sum(parts) / 2))


def test_model_and_task_give_one_number_whatever_the_batch_and_stay_in_training():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 1))
    x = torch.rand(30, 5)
    first = complexity(model, x, batch=7)
    assert first == pytest.approx(complexity(Task(model, "mse"), x), rel=1e-5)
    assert all(module.training for module in model.modules())


def test_critical_samples_of_a_half_space_are_those_near_its_boundary():
    """sign(x₁) changes within |x̂ − x|_∞ ≤ r exactly if |x₁| ≤ r."""
    torch.manual_seed(0)
    x = torch.rand(400, 3) * 2 - 1
    exact = float((x[:, 0].abs() < 0.2).double().mean())
    both = (lambda v: v[:, :1], lambda v: torch.stack([v[:, 0], -v[:, 0]], 1))
    for f in both:
        assert critical_sample_ratio(f, x, radius=0.2, noise=0.0) == pytest.approx(exact, abs=0.01)


def test_critical_sample_ratio_of_a_constant_is_zero_and_is_repeatable():
    model = nn.Linear(3, 4)
    x = torch.rand(20, 3)
    a = complexity(model, x, "critical_sample_ratio", radius=0.5)
    assert a == complexity(model, x, "critical_sample_ratio", radius=0.5)
    nn.init.zeros_(model.weight)
    assert complexity(model, x, "critical_sample_ratio") == 0


def test_unknown_kinds_are_named():
    with pytest.raises(TorchliftError, match="rkhs"):
        complexity(nn.Linear(2, 1), torch.rand(3, 2), "kolmogorov")


def test_cycles_read_a_b_c_d_from_the_history():
    rows = [
        {"fit": fit, "phase": phase, "train_loss": 9.0, "valid_loss": loss, "complexity": rough}
        for fit, phase, loss, rough in [
            (0, "base", 2.0, 1.0),
            (0, "base", 1.0, 2.0),
            (1, "lifted", 0.4, 5.0),
            (2, "project", 0.7, 4.5),
            (3, "base", 0.6, 4.0),
            (4, "lifted", 0.5, 6.0),
            (5, "project", 0.55, 5.0),
        ]
    ]
    first, second = cycles(rows)
    assert (first.a, first.b, first.c, first.d) == pytest.approx((0.6, 0.3, 3.0, 0.5))
    assert first.gain == pytest.approx(0.3)
    assert second.a == pytest.approx(0.1)
    for row in rows:
        del row["complexity"]
    assert cycles(rows)[0].c is None


def test_cycles_read_the_weights_that_a_phase_hands_on():
    """With keep="best" a phase that ends worse than it was hands on its best epoch."""
    torch.manual_seed(0)
    x = torch.rand(64, 5)
    data = x, x.sum(1, keepdim=True)
    recipe = tl.recipes.NeuralLifting("trunk", kind="block", keep="best", lrs=(1e-3, 3.0, 1e-3))
    result = tl.fit(tl.models.BlockNet(1), data, data, recipe=recipe, loss="mse", epochs=12, progress=False)
    losses = {phase: [r["valid_loss"] for r in result.history if r["phase"] == phase] for phase in PHASES}
    assert min(losses["lifted"]) < losses["lifted"][-1], "the phase must end worse than its best"
    (cycle,) = cycles(result.history)
    assert (cycle.base, cycle.lifted, cycle.projected) == tuple(min(losses[phase]) for phase in PHASES)


def test_a_run_logs_complexity_when_asked():
    """With it, what the base phase did to the function it started from (eq. 7)."""
    torch.manual_seed(0)
    x = torch.rand(64, 5)
    data, model = (x, x.sum(1, keepdim=True)), tl.models.BlockNet(1)
    recipe = tl.recipes.NeuralLifting("trunk", kind="block", complexity="rkhs", keep="last", cycles=2)
    result = tl.fit(model, data, data, recipe=recipe, loss="mse", epochs=6, progress=False)
    first, second = cycles(result.history)
    base, lifted, projected, again, *_ = result.history
    with torch.no_grad():
        before = float(nn.functional.mse_loss(model(x), data[1]))
    assert first.c == pytest.approx(lifted["complexity"] - base["complexity"])
    assert first.fall == pytest.approx(before - base["valid_loss"])
    assert first.rise == pytest.approx(base["complexity"] - complexity(model, x, "rkhs"), rel=1e-3)
    assert second.fall == pytest.approx(projected["valid_loss"] - again["valid_loss"])
    assert second.rise == pytest.approx(again["complexity"] - projected["complexity"], rel=1e-3)
