import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchlift import until
from torchlift.errors import TorchliftError


def stops_at(rule: until.Rule, values: list[float]) -> int | None:
    return next((n for n, value in enumerate(values, 1) if rule.update(value)), None)


def test_epochs_counts() -> None:
    assert stops_at(until.Epochs(3), [1.0] * 10) == 3


def test_plateau_on_a_scripted_curve() -> None:
    curve = [5.0, 4.0, 4.5, 3.9, 3.95, 3.9, 3.91, 1.0]
    assert stops_at(until.Plateau(patience=3, cap=100), curve) == 7
    assert stops_at(until.Plateau(patience=3, cap=5), curve) == 5
    assert stops_at(until.Plateau(patience=2, cap=100, min_delta=0.5), curve) == 4


def test_stationary_watches_the_gradient() -> None:
    rule = until.Stationary(grad_norm=0.1, cap=50)
    assert rule.watches == "grad_norm"
    assert stops_at(rule, [1.0, 0.5, 0.1, 0.01]) == 3


@given(st.lists(st.floats(0, 10), min_size=60, max_size=60), st.integers(1, 5), st.integers(1, 40))
def test_every_rule_stops_by_its_cap(values: list[float], patience: int, cap: int) -> None:
    for rule in (until.Epochs(cap), until.Plateau(patience, cap), until.Stationary(1e-9, cap)):
        stopped = stops_at(rule, values)
        assert stopped is not None
        assert stopped <= cap


@given(st.lists(st.floats(0, 10), min_size=30, max_size=30), st.integers(0, 29))
def test_a_restored_rule_goes_on_as_if_nothing_had_been(values: list[float], cut: int) -> None:
    straight, first, second = (until.Plateau(4, 25) for _ in range(3))
    answers = [straight.update(value) for value in values]
    head = [first.update(value) for value in values[:cut]]
    second.restore(first.state())
    assert head + [second.update(value) for value in values[cut:]] == answers


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf])
def test_caps_must_be_finite_and_positive(bad: float) -> None:
    with pytest.raises(TorchliftError, match="positive finite"):
        until.Epochs(bad)
