"""Tables and folders of pictures: what is in them is what is trained on, or it raises one line."""

import numpy as np
import pytest
import torch

from torchlift import data

PIL = pytest.importorskip("PIL.Image")


def table(tmp_path, *rows):
    path = tmp_path / "t.csv"
    path.write_text("\n".join(rows))
    return str(path)


def test_words_are_classes_and_columns(tmp_path):
    rows = [f"{i},{'red' if i % 3 else 'blue'},{'yes' if i % 2 else 'no'}" for i in range(40)]
    parts = data.load(table(tmp_path, "size,color,answer", *rows))
    assert (parts.kind, parts.shape, parts.outputs) == ("classification", (3,), 2)
    x, _ = parts.train
    assert torch.allclose(x.mean(0), torch.zeros(3), atol=1e-6)
    assert torch.allclose(x.std(0), torch.ones(3), atol=1e-5)
    every = torch.cat([split[1] for split in (parts.train, parts.valid, parts.test)])
    assert every.bincount().tolist() == [20, 20]


def test_a_named_target_stands_anywhere_and_decimals_are_a_regression(tmp_path):
    parts = data.load(table(tmp_path, "target,a", *[f"{i}.5,{i * i}" for i in range(30)]))
    assert (parts.kind, parts.shape, parts.outputs) == ("regression", (1,), 1)
    assert parts.loss == "mse"


def test_whole_numbers_count_as_classes_in_their_order(tmp_path):
    parts = data.load(table(tmp_path, "a,b", *[f"{i % 5}.0,{(10, 9, 2)[i % 3]}" for i in range(60)]))
    assert parts.outputs == 3


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["a,b", *["1,2"] * 3], "10 at least"),
        (["1,2", *["1,2"] * 20], "column names"),
        (["a,a", *["1,2"] * 20], "column names"),
        (["a,b", *["1,x"] * 20], "nothing to learn"),
        (["a,b", *["1,x"] * 20, "1"], "row 22: 1 cells"),
        (["a,b", *["1,x"] * 20, ",y"], "empty, the first in row 22"),
        (["a,b", *["1,x"] * 20, "nan,y"], "NaN or Inf in row 22"),
        (
            ["a,b", *[f"1,{i}" for i in range(30)]],
            '30 different .* are not classes; for a regression pass kind="regression"',
        ),
        (["a,b", *[f"word{i},{i % 2}" for i in range(200)]], "200 different words"),
    ],
)
def test_bad_tables_raise(tmp_path, rows, words):
    with pytest.raises(data.LoadError, match=words):
        data.load(table(tmp_path, *rows))


def picture(path, value, size=(6, 5), mode="L"):
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (size[1], size[0]) if mode == "L" else (size[1], size[0], 3)
    PIL.fromarray(np.full(shape, value, np.uint8)).save(path)


def test_pictures_by_class(tmp_path):
    for name, value in (("cat", 50), ("dog", 200)):
        for i in range(10):
            picture(tmp_path / name / f"{i}.png", value + i)
    parts = data.load(str(tmp_path))
    assert (parts.shape, parts.outputs) == ((1, 5, 6), 2)
    for x, y in (parts.train, parts.valid, parts.test):
        assert ((x[:, 0, 0, 0] > 0) == (y == 1)).all()


def test_parts_of_pictures_and_colors(tmp_path):
    for split in ("train", "val", "test"):
        for name, value in (("a", 10), ("b", 90)):
            for i in range(4):
                picture(tmp_path / split / name / f"{i}.png", value + i, mode="RGB" if i % 2 else "L")
    parts = data.load(str(tmp_path))
    assert parts.shape == (3, 5, 6)
    assert [len(x) for x, _ in (parts.train, parts.valid, parts.test)] == [8, 8, 8]


def test_bad_pictures_raise(tmp_path):
    for name in ("a", "b"):
        for i in range(4):
            picture(tmp_path / name / f"{i}.png", 10 * i)
    picture(tmp_path / "b" / "large.png", 3, size=(9, 9))
    with pytest.raises(data.LoadError, match="make them one size"):
        data.load(str(tmp_path))
    (tmp_path / "b" / "large.png").write_bytes(b"no picture")
    with pytest.raises(data.LoadError, match="cannot be read as a picture"):
        data.load(str(tmp_path))
