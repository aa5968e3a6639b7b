"""One search for every target: the nearest of what can be had, on lines and stairs, rising and falling."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchlift.errors import TorchliftError
from torchlift.targets import Target, solve_for_target


def stairs(ratio: float) -> float:
    return 10.0 - int(10 * ratio)


def test_the_nearest_step_of_a_stair() -> None:
    for target, step in ((4.0, 4.0), (4.4, 4.0), (99.0, 10.0), (-5.0, 0.0)):
        actual = solve_for_target(stairs, target, 0.0, 1.0)
        assert stairs(actual.at) == actual.achieved == step


def test_at_most_is_never_above() -> None:
    assert solve_for_target(stairs, 4.9, 0.0, 1.0, at_most=True).achieved == 4.0
    assert solve_for_target(stairs, -1.0, 0.0, 1.0, at_most=True).achieved == 0.0, "or the least there is"


@given(st.floats(0.3, 3.0), st.booleans(), st.floats(0.01, 0.99))
def test_curves_that_rise_or_fall(power: float, rising: bool, target: float) -> None:
    def curve(x: float) -> float:
        return x**power if rising else 1 - x**power

    actual = solve_for_target(curve, target, 0.0, 1.0, steps=24)
    assert math.isclose(actual.achieved, target, abs_tol=1e-3)
    assert actual.high - actual.low < 1e-2


def test_a_line_takes_one_step() -> None:
    calls: list[float] = []
    solve_for_target(lambda x: calls.append(x) or 8 * x, 3.0, 0.0, 1.0)
    assert len(calls) == 3


def test_one_target_at_most_and_within_reach() -> None:
    assert Target.one_of(bytes=None) is None
    assert Target.one_of(bytes=100, bits=None) == Target("bytes", 100.0)
    assert Target("bytes", 100.0).row() == {"bytes_target": 100.0}
    with pytest.raises(TorchliftError, match="one target, not 2: bytes, bits"):
        Target.one_of(bytes=1, bits=2)
    with pytest.raises(TorchliftError, match="bytes=5 is out of reach of this mask: it leaves 10 to 20"):
        Target("bytes", 5).check(10, 20, "this mask")
