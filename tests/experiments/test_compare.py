"""Equal cost, paired seeds, plain always there."""

import functools
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import nn

import torchlift as tl


def data(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(seed))
    return x, x.prod(1)


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))


RECIPES = {"lifted": tl.lifts.Lifter("2", width=64, mix=0.5), "masked": tl.lifts.SoftMask(strength=0.0)}


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> tuple[tl.Comparison, Path]:
    out = tmp_path_factory.mktemp("comparison")
    optimizer = functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9)
    settings = {"loss": "mse", "batch_size": 20, "optimizer": optimizer, "progress": False}
    result = tl.compare(
        model, data(1), data(2), data(3), recipes=RECIPES, seeds=2, budget=6, out=out, **settings
    )
    return result, out


def test_costs_are_equal_whatever_a_step_costs(comparison: tuple[tl.Comparison, Path]) -> None:
    for runs in comparison[0].results.values():
        for run in runs:
            assert run.cost == pytest.approx(6.0, rel=0.05)
    lifted = comparison[0].results["lifted"][0].history
    assert sum(row["phase"] == "lifted" for row in lifted) < 3, "a lifted epoch costs more than a plain one"


def test_seeds_are_paired(comparison: tuple[tl.Comparison, Path]) -> None:
    results = comparison[0].results
    for plain, lifted in zip(results["plain"], results["lifted"], strict=True):
        assert torch.equal(plain.before[0].weight, lifted.before[0].weight)
    assert not torch.equal(results["plain"][0].before[0].weight, results["plain"][1].before[0].weight)


def test_the_table_and_the_report_have_every_recipe(comparison: tuple[tl.Comparison, Path]) -> None:
    result, out = comparison
    page = result.report(out / "report.html").read_text()
    stored = json.loads((out / "comparison.json").read_text())
    for name in ("plain", *RECIPES):
        assert name in result.table()
        assert name in page
        assert len(stored["recipes"][name]["test"]) == 2


def test_columns_are_as_wide_as_what_is_in_them(comparison: tuple[tl.Comparison, Path]) -> None:
    head, rule, *rows = comparison[0].table().splitlines()
    assert rule == "-" * len(head)
    assert [row.split()[0] for row in rows[:3]] == ["plain", *RECIPES]
    assert {len(row) for row in rows[:3]} == {len(head)}
    for column in ("mse (test)", "cost", "params"):
        end = head.index(column) + len(column)
        assert all(row[end - 1] != " " and row[end : end + 1].strip() == "" for row in rows[:3]), column


def test_differences_are_better_when_positive(comparison: tuple[tl.Comparison, Path]) -> None:
    result = comparison[0]
    for name in RECIPES:
        gains = [
            p - m for m, p in zip(result.scores(name), result.scores("plain"), strict=True)
        ]  # mse: lower is better
        assert result.paired(name).mean == pytest.approx(sum(gains) / 2)


def to_nothing(values: list[float]) -> Any:
    """Scores paired with a control that has none."""

    def runs(scores: list[float]) -> Any:
        return [SimpleNamespace(scores={"test": SimpleNamespace(metric=score)}) for score in scores]

    results = {"plain": runs([0.0] * len(values)), "ours": runs(values)}
    return tl.Comparison(results, tuple(range(len(values))), 1.0, "accuracy", True).paired("ours")


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=16))
def test_the_interval_is_students(values: list[float]) -> None:
    interval = to_nothing(values)
    mean, error = sum(values) / len(values), float(stats.sem(values))
    low, high = (
        mean - stats.t.ppf(0.975, len(values) - 1) * error,
        mean + stats.t.ppf(0.975, len(values) - 1) * error,
    )
    assert math.isclose(interval.low, low, rel_tol=1e-3, abs_tol=1e-3 * (1 + error))
    assert math.isclose(interval.high, high, rel_tol=1e-3, abs_tol=1e-3 * (1 + error))


def test_quantiles_of_students_t() -> None:
    for freedom in (*range(1, 40), 100, 1000):
        values = [float(k % 2) for k in range(freedom + 1)]
        interval, error = to_nothing(values), float(stats.sem(values))
        assert interval.high - interval.mean == pytest.approx(stats.t.ppf(0.975, freedom) * error, rel=1e-9)
