"""Gradientless descent and line searches on grids with known minima."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchlift.optim import gld, line_searches

RATES = [10.0**k for k in range(-10, 11)]
GRID = (RATES, RATES)


def bowl(a: float, b: float) -> float:
    """Separable, with its minimum at (1e3, 1e-4)."""
    return (math.log10(a) - 3) ** 2 + (math.log10(b) + 4) ** 2


def valley(a: float, b: float) -> float:
    """Adam's shape: what matters is a/b; the minimum is at (1e-3, 1e-3) but barely."""
    return (math.log10(a) - math.log10(b)) ** 2 + 0.01 * (math.log10(a) + 3) ** 2


@given(seed=st.integers(0, 1000), coordinate=st.booleans())
@settings(deadline=None, max_examples=30)
def test_gld_finds_the_bottom_of_a_bowl(seed, coordinate):
    search = gld(bowl, GRID, coordinate, trials=120, seed=seed)
    assert search.value <= 1
    assert search.value == bowl(*search.best)
    assert len(search.trials) <= 120
    assert len({point for point, _ in search.trials}) == len(search.trials)


def test_coordinate_steps_pay_on_a_separable_function_only():
    def trials(f, coordinate):
        runs = (gld(f, GRID, coordinate, trials=441, seed=seed).trials for seed in range(40))
        return sum(next((i for i, (_, value) in enumerate(run) if value < 0.5), 441) for run in runs) / 40

    assert trials(bowl, True) < trials(bowl, False)
    assert trials(valley, True) > trials(bowl, True)


def test_moves_along_one_axis_only_when_asked():
    search = gld(bowl, GRID, True, trials=3, start=(0, 0))
    assert {b for (_, b), _ in search.trials} == {RATES[0]}


def test_is_repeatable_and_ends_when_the_grid_is_exhausted():
    assert gld(bowl, GRID, seed=3).trials == gld(bowl, GRID, seed=3).trials
    assert len(gld(lambda a: a, [[1.0, 2.0, 3.0]], trials=100).trials) == 3


def test_divergence_counts_as_infinite():
    search = gld(lambda a: math.nan if a > 1 else a, [[0.5, 1.0, 2.0, 4.0]], trials=4)
    assert search.best == (0.5,)
    assert max(value for _, value in search.trials) == math.inf


@given(st.data())
@settings(deadline=None, max_examples=30)
def test_two_line_searches_solve_a_separable_problem(data):
    """n + m − 1 trials find the minimum over n·m points."""
    numbers = st.integers(-576, 576).map(lambda k: k / 64)  # sums are exact: no tie by rounding
    parts = [data.draw(st.lists(numbers, min_size=n, max_size=n)) for n in (7, 5)]
    search = line_searches(lambda i, j: parts[0][int(i)] + parts[1][int(j)], [range(7), range(5)])
    assert search.value == min(parts[0]) + min(parts[1])
    assert len(search.trials) == 7 + 5 - 1


def test_two_line_searches_fail_in_a_valley():
    assert line_searches(valley, GRID, start=(20, 20)).value > 0.1
    assert line_searches(bowl, GRID, start=(20, 20)).value == 0


def test_what_cannot_be_searched_raises():
    with pytest.raises(ValueError, match="a grid needs axes with values"):
        gld(bowl, [[], [1.0]])
    with pytest.raises(ValueError, match="at least 1 trial"):
        gld(bowl, GRID, trials=0)
