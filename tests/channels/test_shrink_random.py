"""Random networks, random zeros: what was planted dead goes, nothing else does; of constants, what stays has
a reason."""

import pytest

from shrink_trials import trial


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cnn", "transformer"])
@pytest.mark.parametrize("way", ["dead", "constant"])
def test_random_networks_lose_what_was_planted(kind, way):
    cut = 0
    for seed in range(10_000, 10_010):
        outcome = trial(kind, seed, way)
        assert outcome.error <= 1e-6, outcome
        assert outcome.unexplained == 0, outcome
        assert outcome.shapes >= 3, outcome
        assert outcome.cut == outcome.planted if way == "dead" else outcome.cut <= outcome.planted, outcome
        cut += outcome.left < 1
    assert cut >= 7


@pytest.mark.parametrize("kind", ["cnn", "transformer"])
def test_random_networks_without_zeros_are_unchanged_and_planted_ones_lose_these(kind):
    for seed in range(3):
        assert trial(kind, seed, way="none").left == 1
        outcome = trial(kind, seed, way="dead")
        assert outcome.error <= 1e-6
        assert outcome.cut == outcome.planted
