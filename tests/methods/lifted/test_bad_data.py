"""Whatever the method: data that cannot be trained on raise one line, odd containers are read."""

import pytest
import torch
from torch import nn

from torchlift import lifted
from torchlift.errors import TorchliftError

X, Y = torch.randn(20, 4, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 3
METHODS = pytest.mark.parametrize("method", ["isgm", "bcd", "contrastive"])


def train(method, data, half=False, epochs=1):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    model = model.half() if half else model
    return lifted.train(model, data, method=method, loss="cross_entropy", epochs=epochs, progress=False).model


@METHODS
@pytest.mark.parametrize(
    ("data", "half", "words"),
    [
        ((X[:0], Y[:0]), False, "holds no samples"),
        ((X * torch.nan, Y), False, "NaN or infinite"),
        ((X, Y[:7]), False, "x has 20 samples, y has 7"),
        ((X.half(), Y), True, "torch.float16"),
        (5, False, "not int"),
    ],
)
def test_bad_data_are_one_line(method, data, half, words):
    with pytest.raises(TorchliftError, match=words) as caught:
        train(method, data, half)
    assert "\n" not in str(caught.value)


@METHODS
def test_numpy_pairs_and_generators_are_what_they_hold(method):
    want = train(method, [(X, Y)], epochs=2)
    numpy = train(method, (X.numpy(), Y.numpy()), epochs=2)
    assert all(bool(p.isfinite().all()) for p in numpy.parameters())
    actual = train(method, (pair for pair in [(X, Y)]), epochs=2)
    for a, b in zip(want.parameters(), actual.parameters(), strict=True):
        assert torch.equal(a, b), "a generator is not exhausted after the first epoch"
