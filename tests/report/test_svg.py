import math
import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from torchlift.report.svg import (
    ChartAxis,
    area,
    decimate,
    finite_runs,
    fit_axis,
    nice_step,
    path,
    tick_values,
    ticks,
)

finite = st.floats(-1e9, 1e9, allow_nan=False)
positive = st.floats(1e-9, 1e9)


@settings(deadline=None, max_examples=60)
@given(low=finite, span=st.floats(1e-3, 1e9), most=st.integers(3, 9))
def test_linear_ticks_are_few_round_and_inside(low, span, most):
    axis = ChartAxis(low, low + span)
    values = tick_values(axis, most)
    step = nice_step(axis.high - axis.low, most)
    assert 1 <= len(values) <= most + 1
    assert re.fullmatch(r"[125]\.0+e[-+]\d+", f"{step:.6e}")
    assert all(axis.low - step * 1e-3 <= value <= axis.high + step * 1e-3 for value in values)
    assert all(abs(value / step - round(value / step)) < 1e-3 for value in values)


@settings(deadline=None, max_examples=60)
@given(low=positive, ratio=st.floats(1.5, 1e9))
def test_log_ticks_increase_inside_the_axis(low, ratio):
    axis = ChartAxis(low, low * ratio, log=True)
    values = tick_values(axis)
    assert values == sorted(set(values))
    assert all(axis.low * (1 - 1e-9) <= value <= axis.high * (1 + 1e-9) for value in values)
    assert len(values) <= 7


def test_ticks_people_would_choose():
    assert [tick.label for tick in ticks(ChartAxis(0, 1))] == ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]
    assert [tick.label for tick in ticks(ChartAxis(0, 30_000))] == [
        "0",
        "5,000",
        "10,000",
        "15,000",
        "20,000",
        "25,000",
        "30,000",
    ]
    assert [tick.label for tick in ticks(ChartAxis(1e-6, 1, log=True))] == ["1e−6", "0.0001", "0.01", "1"]
    assert tick_values(ChartAxis(1, 1000, log=True)) == [1, 10, 100, 1000]
    assert tick_values(ChartAxis(1, 50, log=True)) == [1, 2, 5, 10, 20, 50]


def test_an_axis_has_positions_for_values_it_can_show():
    assert ChartAxis(0, 4).at(1) == 0.25
    assert ChartAxis(1, 100, log=True).at(10) == pytest.approx(0.5)
    assert math.isnan(ChartAxis(1, 100, log=True).at(0))
    assert math.isnan(ChartAxis(0, 1).at(math.inf))


@settings(deadline=None, max_examples=60)
@example(values=[4.0, 2.2250738585072014e-308], log=True)
@example(values=[1.7e308, 5e-324], log=True)
@given(values=st.lists(finite | st.just(math.nan), max_size=20), log=st.booleans())
def test_a_fitted_axis_shows_every_value_it_can(values, log):
    axis = fit_axis(values, log=log)
    assert axis.low < axis.high
    positions = [position for position in map(axis.at, values) if math.isfinite(position)]
    assert all(-1e-9 <= position <= 1 + 1e-9 for position in positions)
    assert len(positions) == sum(math.isfinite(value) and (value > 0 or not log) for value in values)


def test_a_fitted_axis_starts_at_a_zero_nearby_and_widens_a_constant():
    assert fit_axis([0.1, 2.0]).low == 0.0
    assert fit_axis([1.9, 2.0]).low > 1.8
    assert fit_axis([3.0, 3.0]) == ChartAxis(3.0 - 0.3, 3.0 + 0.3)
    assert fit_axis([0.0]) == ChartAxis(-1.0, 1.0)
    assert fit_axis([1.0, 1.0]).high == 1.0


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 10**6),
    size=st.integers(300, 3000),
    most=st.sampled_from([50, 200]),
    gaps=st.booleans(),
)
def test_decimation_keeps_ends_extremes_and_gaps(seed, size, most, gaps):
    noise = np.random.default_rng(seed)
    y = np.where(noise.random(size) < 0.01 * gaps, math.nan, noise.standard_normal(size)).tolist()
    kept = decimate(y, most)
    drawn = [y[k] for k in kept if math.isfinite(y[k])]
    numbers = [value for value in y if math.isfinite(value)]
    assert kept == sorted(set(kept))
    assert (kept[0], kept[-1]) == (0, len(y) - 1)
    assert len(kept) <= 1.5 * most + 3
    if numbers:
        assert (min(drawn), max(drawn)) == (min(numbers), max(numbers))
    assert any(map(math.isnan, y)) == any(math.isnan(y[k]) for k in kept)


def test_short_data_is_not_decimated():
    assert decimate([3.0, 1.0, 2.0], 3) == [0, 1, 2]


def test_paths_break_at_gaps_and_dot_lone_points():
    nan = math.nan
    assert path([(0, 0), (0.5, 1), (nan, 0), (1, 0.25)]) == "M0,1000L500,0M996,750h8"
    assert path([(0, nan)]) == ""
    assert finite_runs([(0, 1), (1, nan), (2, 3)]) == [[(0, 1)], [(2, 3)]]


def test_a_band_goes_out_below_and_back_above():
    assert area([(0, 0), (1, 0)], [(0, 0.5), (1, 1)]) == "M0,1000L1000,1000L1000,0L0,500Z"
    assert area([(0, math.nan)], [(0, 1.0)]) == ""
