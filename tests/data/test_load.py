import tracemalloc
import zipfile

import numpy as np
import pytest
import torch

from torchlift import data

RNG = np.random.default_rng(0)
X, LABELS = RNG.normal(size=(40, 3)), np.arange(40) % 4


@pytest.fixture
def save(tmp_path):
    def write(**arrays):
        path = tmp_path / "mine.npz"
        np.savez(path, **arrays)
        return str(path)

    return write


@pytest.mark.parametrize("name", ["digits", "iris", "teacher-student", "toy-text"])
def test_built_in_names(name):
    parts = data.load(name, seed=1)
    assert parts.loss == {"teacher-student": "mse"}.get(name, "cross_entropy")
    assert all(len(x) == len(y) > 0 for x, y in (parts.train, parts.valid, parts.test))


def test_images_by_name_are_normalized_by_their_training_part(monkeypatch):
    pair = (torch.randint(0, 256, (60, 1, 4, 4), dtype=torch.uint8), torch.arange(60) % 10)
    loaded = data.loading.images(lambda _: (pair, pair), 0.5, "0 1 2 3 4 5 6 7 8 9", None, 0)
    assert [len(x) for x, _ in (loaded.train, loaded.valid, loaded.test)] == [30, 30, 60]
    torch.testing.assert_close(loaded.train[0].mean(), torch.tensor(0.0), atol=1e-6, rtol=0)


def test_unknown_names_are_met_with_the_nearest():
    with pytest.raises(data.LoadError, match="did you mean 'cifar10'"):
        data.load("cifar-10")
    with pytest.raises(data.LoadError, match=r"use one of digits, iris, .*\.npz"):
        data.load("xyzzy")


def test_x_and_y_are_split(save):
    parts = data.load(save(x=X, y=LABELS))
    assert [len(x) for x, _ in (parts.train, parts.valid, parts.test)] == [28, 4, 8]
    assert (parts.kind, parts.shape, parts.outputs) == ("classification", (3,), 4)
    assert parts.train[0].dtype == torch.float32
    together = torch.cat([y for _, y in (parts.train, parts.valid, parts.test)])
    assert together.bincount().tolist() == [10] * 4


def test_given_parts_are_kept(save):
    parts = data.load(save(x_train=X, y_train=LABELS, x_test=X[:5], y_test=LABELS[:5]))
    assert [len(x) for x, _ in (parts.train, parts.valid, parts.test)] == [35, 5, 5]
    torch.testing.assert_close(parts.test[0], torch.from_numpy(X[:5]).float())


def test_a_folder_of_arrays(tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", X[:, 0])
    parts = data.load(str(tmp_path))
    assert (parts.kind, parts.outputs, parts.loss) == ("regression", 1, "mse")


def test_kinds_and_types(save):
    tokens = RNG.integers(0, 9, (40, 6))
    assert data.load(save(x=tokens, y=tokens)).kind == "text"
    column = data.load(save(x=X, y=LABELS[:, None]))
    assert column.train[1].ndim == 1
    pixels = data.load(save(x=np.full((40, 3), 255, np.uint8), y=LABELS))
    assert (pixels.train[0] == 1).all()


def with_value(array, value):
    changed = array.astype(float)
    changed[7] = value
    return changed


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": X}, "has no y, which the train split needs; it has: x"),
        ({"data": X}, "has no x_train"),
        ({"x_train": X, "y_train": LABELS, "x_test": X}, "has no y_test, which the test split needs"),
        ({"x": X, "y": LABELS[:-1]}, "40 inputs but 39 targets"),
        ({"x": X[:0], "y": LABELS[:0]}, "x is empty"),
        ({"x": X, "y": np.float64(1)}, "y is empty"),
        ({"x": X[:3], "y": LABELS[:3]}, "too few samples"),
        ({"x": with_value(X, np.nan), "y": LABELS}, "NaN or Inf in 1 samples, first 7; drop or fill them"),
        ({"x": X, "y": with_value(X[:, 0], np.inf)}, "y has NaN or Inf"),
        ({"x": X, "y": 0 * LABELS}, "one class only, 0"),
        ({"x": X, "y": 0 * X[:, 0]}, "one target only, 0.0"),
        ({"x": X, "y": LABELS - 1}, "labels must count from 0"),
        ({"x": X.astype(str), "y": LABELS}, "not numbers"),
        ({"x": np.array([None, "a"], object), "y": LABELS}, "not a file of plain arrays"),
        (
            {"x_train": X, "y_train": LABELS, "x_valid": X[:, :2], "y_valid": LABELS},
            "train and valid differ in shape",
        ),
        (
            {"x_train": X, "y_train": LABELS, "x_test": X, "y_test": X[:, 0]},
            "train and test differ in shape or type",
        ),
    ],
)
def test_bad_arrays_are_one_clear_line(save, arrays, message):
    with pytest.raises(data.LoadError) as caught:
        data.load(save(**arrays))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"garbage", b"PK\x03\x04 cut"])
def test_files_that_are_no_arrays(tmp_path, content):
    path = tmp_path / "mine.npz"
    path.write_bytes(content)
    with pytest.raises(data.LoadError, match="is not a file of plain arrays"):
        data.load(str(path))


def test_an_archive_that_unfolds_to_far_more_than_it_is_raises(tmp_path):
    """Nothing of it is unfolded."""
    path, block = tmp_path / "bomb.npz", bytes(2**20)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in ("x.npy", "y.npy"):
            with archive.open(name, "w") as file:
                np.lib.format.write_array_header_1_0(
                    file, {"descr": "|i1", "fortran_order": False, "shape": (160 * 2**20,)}
                )
                for _ in range(160):
                    file.write(block)
    assert path.stat().st_size < 2**21
    tracemalloc.start()
    with pytest.raises(data.LoadError, match="unfolds to"):
        data.load(str(path))
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()


def test_messages_print_no_characters_that_an_archive_chose(tmp_path):
    path = tmp_path / "mine.npz"
    np.savez(path, **{"\x1b[2J\u202e" + "z" * 900: X})
    with pytest.raises(data.LoadError) as caught:
        data.load(str(path))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/stdin"])
def test_devices_are_not_read(name):
    with pytest.raises(data.LoadError):
        data.load(name)


def test_missing_files_and_empty_folders(tmp_path):
    with pytest.raises(data.LoadError, match=r"is not there; give an \.npz file"):
        data.load(str(tmp_path / "none.npz"))
    with pytest.raises(data.LoadError, match=r"holds no \.npy files"):
        data.load(str(tmp_path))
