"""Random networks, random masks: the shrunken network is the masked one, or says why it keeps a channel."""

import pytest

from torchlift.testing.shrink_trials import trial


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cnn", "transformer"])
@pytest.mark.parametrize("start", range(0, 40, 10))
def test_random_networks(kind, start):
    cut = 0
    for seed in range(10_000 + start, 10_010 + start):
        found = trial(kind, seed)
        assert found.error <= 1e-6, found
        assert found.unexplained == 0, found
        assert found.shapes >= 3, found
        cut += found.left < 1
    assert cut >= 8
