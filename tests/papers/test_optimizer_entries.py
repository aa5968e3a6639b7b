"""The reproduction entries of the optimizers, on tiny stand-ins for the data."""

import math
from functools import partial
from statistics import fmean

import pytest
import torch
from entry_modules import module_of

from papers.savarese_thesis import (
    convergence_bounds,
    delayed_adam,
    optimizer_tuning,
    optimizers,
    separability,
    short_trainings,
)
from torchlift.report import reproduction_page


def tiny(name):
    def make(*_, **__):
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(40, 4, generator=generator)
        pair = (x, (x.sum(1) > 0).long())
        model = partial(torch.nn.Linear, 4, 2)
        score = short_trainings.error
        return short_trainings.Workload(name, model, pair, pair, pair, 20, 6, score, 90.0, 0.0)

    return make


@pytest.fixture
def entry(monkeypatch, tmp_path):
    def run(name, **settings):
        module = module_of(name)
        for task in ("images", "characters"):
            monkeypatch.setattr(short_trainings, task, tiny(task))
        result = module.run(tmp_path, stand_in=True, **settings)
        assert all(set(result["columns"]) == set(row) for row in result["rows"])
        assert reproduction_page(result).title
        return result

    return run


def test_eq_613_has_the_gradient_and_the_stationary_point_of_the_thesis():
    """f(w) = 999·w²/1000 − 499·w/500, whose slope vanishes at 499/999."""
    w = torch.tensor([0.25], dtype=torch.float64, requires_grad=True)
    (999 * w**2 / 1000 - 499 * w / 500).sum().backward()
    assert torch.allclose(delayed_adam.expected_slope(w.detach()), w.grad, atol=1e-12)
    assert abs(delayed_adam.OPTIMUM - 499 / 999) < 1e-12


def test_adam_leaves_for_one_and_delayed_adam_for_the_stationary_point(monkeypatch):
    """Shorter and with a longer step than the entry, which has three more methods and more seeds."""
    monkeypatch.setattr(delayed_adam, "STARTS", (0.45, 0.55) * 8)
    common = {"lr": 2e-4, "betas": (0.0, 0.99)}
    adam, _ = delayed_adam.descend(lambda w: torch.optim.Adam(w, eps=1e-8, **common), 6000, range(3))
    delayed, curve = delayed_adam.descend(
        lambda w: delayed_adam.DelayedAdam(w, eps=1e-8, **common), 6000, range(3)
    )
    assert fmean(adam) > max(0.75, fmean(delayed) + 0.2)
    assert abs(fmean(delayed) - delayed_adam.OPTIMUM) < 0.15
    assert [len(values) for values in curve] == [100, 100]


@pytest.mark.parametrize("name", convergence_bounds.METHODS)
def test_runs_keep_the_bounds_of_their_proofs_and_come_near_them(name):
    """Of what (6.53) and (6.83) allow a short run uses a third to all."""
    run = convergence_bounds.descended(name, 400, 0)
    assert 0.3 < run["left"] / run["right"] < 1


def test_separability_reports_the_spread_of_the_best_rate(entry, tmp_path):
    result = entry("separability", seeds=1)
    assert {(row["task"], row["method"]) for row in result["rows"]} == {
        (task, name) for task in ("images", "characters") for name in separability.METHODS
    }
    lines = (tmp_path / "separability.jsonl").read_text().splitlines()
    assert len(lines) == 4 * len(separability.RATES) * len(separability.EPSILONS)
    assert entry("separability", seeds=1)["rows"] == result["rows"]
    assert (tmp_path / "separability.jsonl").read_text().splitlines() == lines


def test_spread_and_price_of_a_coupled_and_a_separable_grid():
    rates = [10.0**k for k in range(4)]
    apart = {(lr, eps): abs(torch.tensor(lr).log10().item() - 1) for lr in rates for eps in rates}
    tied = {(lr, eps): float(lr != eps) for lr in rates for eps in rates}
    assert separability.summary("", "", apart)["spread of best α, decades"] == 0
    assert separability.summary("", "", apart)["price of one α"] == 0
    assert separability.summary("", "", tied)["spread of best α, decades"] == 3
    assert separability.summary("", "", tied)["price of one α"] == 0.75
    assert separability.ends(tied) == (1.0, 1000.0)


def test_tuning_counts_trials_for_every_tuner(entry, monkeypatch):
    module = optimizer_tuning
    monkeypatch.setattr(module, "TUNERS", {k: v for k, v in module.TUNERS.items() if k != "Parzen trees"})
    rows = entry("optimizer_tuning", seeds=3)["rows"]
    assert len(rows) == 4 * 4
    assert all(row["trials"]["mean"] >= 1 for row in rows)
    assert all(row["reached"] == 1 for row in rows if row["tuner"] == "gradientless descent")


@pytest.mark.filterwarnings("ignore")
def test_optimizer_table_has_all_ten_methods_with_the_thesis_beside_them(entry):
    result = entry("optimizers", seeds=2)
    rows = result["rows"]
    assert len(rows) == 20
    axes = {"α": optimizers.RATES, "ε": optimizers.EPSILONS}
    outside = [
        row
        for row in rows
        for symbol, axis in axes.items()
        if row[symbol] is not None and not axis[0] <= row[symbol] <= axis[-1]
    ]
    assert len(result["best outside the grid"]) == len(outside)
    assert all(said in result["finding"] for said in result["best outside the grid"])
    assert {row["method"] for row in rows} == set(optimizers.PAPER)
    assert all(0 <= row["test"]["mean"] <= 90 for row in rows)


def test_a_search_goes_on_beyond_the_edge_of_its_grid():
    """The least is at 1e5 and 1e-6, two steps and one step outside; a least inside is left alone."""

    def value(lr, eps):
        return abs(math.log10(lr) - 5) + abs(math.log10(eps) + 6) / 2

    axes = [[1.0, 10.0, 100.0, 1000.0], [1e-4, 1e-2, 1.0]]
    assert optimizers.bracketed(value, (1000.0, 1e-4), axes) == pytest.approx([1e5, 1e-6])
    assert optimizers.bracketed(value, (10.0, 1e-2), axes) == (10.0, 1e-2)
    assert optimizers.bracketed(value, (1.0, 1.0), [axes[0], [1.0]]) == (1.0, 1.0)


def test_every_method_has_the_same_weight_decay():
    for name, make in optimizers.methods().items():
        optimizer = make([torch.nn.Parameter(torch.ones(1))], lr=0.1, eps=1e-8, weight_decay=0.25)
        assert optimizer.defaults["weight_decay"] == 0.25, name
