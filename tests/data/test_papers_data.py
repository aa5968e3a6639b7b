"""Data and augmentations of the papers' larger experiments."""

import numpy as np
import pytest
import torch

from torchlift.data import LoadError, cifar100, crop_flip_cutout, cutout, imagenet, load


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHLIFT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cifar100").mkdir()
    rng = np.random.default_rng(0)
    for name, count in (("train", 20), ("test", 10)):
        rows = rng.integers(0, 256, (count, 2 + 3072), dtype=np.uint8)
        rows[:, 1] = np.arange(count) % 100
        (tmp_path / "cifar100" / f"{name}.bin").write_bytes(rows.tobytes())
    return tmp_path


def test_cifar100_has_fine_labels(folder):
    (x, y), (x_test, y_test) = cifar100(folder)
    assert x.shape == (20, 3, 32, 32)
    assert y.tolist() == list(range(20))
    assert (len(x_test), y_test.tolist()) == (10, list(range(10)))
    assert len(load("cifar100", folder).valid[0]) == 4


def test_torn_files_raise(folder):
    file = folder / "cifar100" / "train.bin"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(LoadError, match="records of 3074"):
        cifar100(folder)


def test_cutout_sets_one_square_of_every_image_to_zero():
    images = torch.ones(50, 2, 32, 32)
    holes = cutout(images, torch.Generator().manual_seed(0), side=8)[:, 0] == 0
    assert bool((holes.sum((1, 2)) <= 64).all())
    assert int(holes.sum((1, 2)).max()) == 64
    for hole in holes:
        rows, columns = hole.any(1), hole.any(0)
        assert int(hole.sum()) == int(rows.sum()) * int(columns.sum())  # a rectangle
    assert holes.flatten(1).unique(dim=0).shape[0] > 10
    again = crop_flip_cutout(images, torch.Generator().manual_seed(0))
    assert torch.equal(again, crop_flip_cutout(images, torch.Generator().manual_seed(0)))


def test_imagenet_trains_on_random_parts_and_validates_on_the_middle(tmp_path):
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for split in ("train", "val"):
        for name in ("cat", "dog"):
            (tmp_path / "imagenet" / split / name).mkdir(parents=True)
            pixels = rng.integers(0, 256, (40, 60, 3), dtype=np.uint8)
            image.fromarray(pixels).save(tmp_path / "imagenet" / split / name / "a.JPEG")
    train, valid = imagenet(tmp_path, size=16)
    assert (len(train), train.classes) == (2, ["cat", "dog"])
    torch.manual_seed(0)
    first, label = train[1]
    assert (first.shape, label) == ((3, 16, 16), 1)
    assert not torch.equal(first, train[1][0])
    assert torch.equal(valid[0][0], valid[0][0])
