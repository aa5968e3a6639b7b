"""The published figures of the data sets, on the files themselves where there are some."""

import os

import pytest
import torch

from torchlift import data

pytestmark = pytest.mark.skipif(
    "TORCHLIFT_DATA" not in os.environ, reason="TORCHLIFT_DATA names no data folder"
)


@pytest.mark.parametrize(
    ("reader", "mean", "std"),
    [
        (data.cifar10, (0.49140, 0.48216, 0.44653), (0.24703, 0.24349, 0.26159)),
        (data.mnist, (0.13066,), (0.30811,)),
    ],
)
def test_image_statistics(reader, mean, std):
    (x, _), _ = reader()
    measured = data.statistics(x)
    torch.testing.assert_close(measured[0], torch.tensor(mean, dtype=torch.float64), atol=6e-6, rtol=0)
    torch.testing.assert_close(measured[1], torch.tensor(std, dtype=torch.float64), atol=6e-6, rtol=0)


def test_cifar10_has_5000_images_of_each_class():
    (_, y), (_, y_test) = data.cifar10()
    assert y.bincount().tolist() == [5000] * 10
    assert y_test.bincount().tolist() == [1000] * 10


@pytest.mark.parametrize(
    ("level", "sizes"),
    [("char", (5_017_482, 393_042, 442_423, 50)), ("word", (929_589, 73_760, 82_430, 10_000))],
)
def test_ptb_sizes(level, sizes):
    text = data.ptb(level=level)
    assert (len(text.train), len(text.valid), len(text.test), len(text.vocabulary)) == sizes


def test_gray_and_multi30k_sizes():
    assert [len(data.gray(name=name)) for name in ("Set12", "BSD68", "Train400")] == [12, 68, 400]
    assert [len(split) for split in data.multi30k()] == [29_000, 1_014, 1_000]
