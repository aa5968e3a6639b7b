"""Readers, on small files written in each format."""

import gzip
import lzma
import os
import struct

import numpy as np
import pytest
import torch
from PIL import Image

from torchlift import data


@pytest.fixture(autouse=True)
def _own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHLIFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TORCHLIFT_DATA", raising=False)
    monkeypatch.setattr("torchlift.data.sources.INSTALLED", tmp_path / "installed")


@pytest.fixture
def cifar(tmp_path):
    folder = tmp_path / "files" / "cifar10"
    folder.mkdir(parents=True)
    records = np.random.default_rng(0).integers(0, 10, (12, 3073), np.uint8)
    for batch in range(5):
        (folder / f"data_batch_{batch + 1}.bin.xz").write_bytes(
            lzma.compress(records[2 * batch : 2 * batch + 2].tobytes())
        )
    (folder / "test_batch.bin").write_bytes(records[10:].tobytes())
    return folder.parent, records


def test_cifar10_keeps_order_and_layout(cifar):
    folder, records = cifar
    (x, y), (x_test, y_test) = data.cifar10(folder)
    assert x.dtype == torch.uint8
    assert y.tolist() == records[:10, 0].tolist()
    assert y_test.tolist() == records[10:, 0].tolist()
    assert x[3, 1, 2, 5] == records[3, 1 + 1024 + 2 * 32 + 5]
    assert torch.equal(x_test.flatten(1), torch.from_numpy(records[10:, 1:]))


def test_the_folder_may_be_the_data_itself_or_come_from_the_environment(cifar, monkeypatch):
    folder, _ = cifar
    direct = data.cifar10(folder / "cifar10")
    monkeypatch.setenv("TORCHLIFT_DATA", str(folder))
    assert torch.equal(data.cifar10()[0][0], direct[0][0])


def test_decoded_copies_are_used_and_follow_their_source(cifar, tmp_path):
    folder, records = cifar
    first = data.cifar10(folder)
    for path in (tmp_path / "cache").iterdir():
        np.save(path, 255 - np.load(path))
    assert torch.equal(data.cifar10(folder)[0][0], 255 - first[0][0])
    (folder / "cifar10" / "test_batch.bin").write_bytes(records[11:].tobytes())
    assert len(data.cifar10(folder)[1][0]) == 1


def test_a_damaged_or_unwritable_cache_does_no_harm(cifar, monkeypatch, tmp_path):
    folder, _ = cifar
    first = data.cifar10(folder)
    for path in (tmp_path / "cache").iterdir():
        path.write_bytes(path.read_bytes()[:100])
    assert torch.equal(data.cifar10(folder)[0][0], first[0][0])
    (tmp_path / "a-file").touch()
    monkeypatch.setenv("TORCHLIFT_CACHE", str(tmp_path / "a-file"))
    assert torch.equal(data.cifar10(folder)[0][0], first[0][0])


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_write_leaves_nothing(cifar, tmp_path, monkeypatch, call):
    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, call, full)
    data.cifar10(cifar[0])
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_cache_is_in_the_users_folder(cifar, tmp_path, monkeypatch):
    monkeypatch.delenv("TORCHLIFT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    data.cifar10(cifar[0])
    assert len(list((tmp_path / "user" / "torchlift").iterdir())) == 2


def idx(array):
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def mnist(tmp_path):
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    images = np.random.default_rng(0).integers(0, 256, (3, 28, 28), np.uint8)
    for split in ("train", "t10k"):
        (folder / f"{split}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
        (folder / f"{split}-labels-idx1-ubyte.gz").write_bytes(
            gzip.compress(idx(np.array([7, 0, 9], np.uint8)))
        )
    return tmp_path, images


def test_mnist(mnist):
    folder, images = mnist
    (x, y), _ = data.mnist(folder)
    assert torch.equal(x, torch.from_numpy(images).unsqueeze(1))
    assert y.tolist() == [7, 0, 9]
    assert y.dtype == torch.int64


def test_fashion_mnist_reads_the_same_format(mnist):
    folder, images = mnist
    assert torch.equal(data.fashion_mnist(folder / "MNIST" / "raw")[1][0][:, 0], torch.from_numpy(images))


def test_an_installed_package_is_found_beside_another_data_folder(mnist, tmp_path):
    folder, images = mnist
    (tmp_path / "installed").mkdir()
    (folder / "MNIST" / "raw").rename(tmp_path / "installed" / "fashion-mnist")
    for other in (None, folder):
        assert torch.equal(data.fashion_mnist(other)[1][0][:, 0], torch.from_numpy(images))


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("train-images-idx3-ubyte.gz", b"not gzip"),
        ("train-images-idx3-ubyte.gz", gzip.compress(b"abc" * 40)[:-20]),
        ("train-images-idx3-ubyte.gz", gzip.compress(idx(np.zeros((3, 28, 28), np.uint8))[:-1])),
        ("train-labels-idx1-ubyte.gz", gzip.compress(idx(np.zeros(2, np.uint8)))),
        ("t10k-labels-idx1-ubyte.gz", gzip.compress(b"")),
        ("t10k-labels-idx1-ubyte.gz", gzip.compress(b"\0\0\x0d\x01\0\0\0\0")),
    ],
    ids=[
        "not gzip",
        "cut short",
        "a byte missing",
        "other count",
        "empty",
        "other type",
    ],  # bytes hold the time
)
def test_damaged_files_say_so_in_one_line(mnist, file, content):
    folder, _ = mnist
    (folder / "MNIST" / "raw" / file).write_bytes(content)
    with pytest.raises(data.LoadError, match=r"fetch (it|them) again") as caught:
        data.mnist(folder)
    assert "\n" not in str(caught.value)


def test_truncated_cifar_records_raise(cifar):
    folder, records = cifar
    (folder / "cifar10" / "test_batch.bin").write_bytes(records[10:].tobytes()[:-1])
    with pytest.raises(data.LoadError, match=r"6145 bytes are not records of 3073"):
        data.cifar10(folder)


def test_one_missing_file_is_named(cifar):
    folder, _ = cifar
    (folder / "cifar10" / "test_batch.bin").unlink()
    with pytest.raises(data.LoadError, match=r"has no test_batch\.bin"):
        data.cifar10(folder)


READERS = [data.cifar10, data.mnist, data.fashion_mnist, data.ptb, data.gray, data.multi30k]


@pytest.mark.parametrize("reader", READERS)
def test_no_folder_names_both_ways(reader):
    with pytest.raises(data.LoadError, match=r"pass one or set TORCHLIFT_DATA to a folder with .+/.+"):
        reader()


@pytest.mark.parametrize("reader", READERS)
def test_a_folder_without_the_files_names_the_layout(reader, tmp_path):
    with pytest.raises(data.LoadError, match=r"has no .+/.+; pass another folder or set TORCHLIFT_DATA"):
        reader(tmp_path)


def test_ptb(tmp_path):
    (tmp_path / "ptb").mkdir()
    for split, text in {"train": " a b <unk> \n c a \n", "valid": " a c \n", "test": " b \n"}.items():
        (tmp_path / "ptb" / f"ptb.{split}.txt").write_text(text)
    words = data.ptb(tmp_path, "word")
    assert [words.vocabulary[i] for i in words.train] == ["a", "b", "<unk>", "<eos>", "c", "a", "<eos>"]
    characters = data.ptb(tmp_path)
    assert "".join(characters.vocabulary[i] for i in characters.train) == "a b <unk>\nc a\n"
    assert "".join(characters.vocabulary[i] for i in characters.valid) == "a c\n"
    with pytest.raises(data.LoadError, match="no level 'byte'"):
        data.ptb(tmp_path, "byte")
    (tmp_path / "ptb" / "ptb.test.txt").write_text("zebra\n")
    with pytest.raises(data.LoadError, match=r"training text lacks: \['zebra'\]"):
        data.ptb(tmp_path, "word")


def test_multi30k(tmp_path):
    folder = tmp_path / "multi30k_de_en"
    folder.mkdir()
    for split in ("train", "val", "test_2016_flickr"):
        (folder / f"{split}.de.gz").write_bytes(gzip.compress("Ein Büro.\nJa\n".encode()))
        (folder / f"{split}.en.gz").write_bytes(gzip.compress(b"An office.\nYes\n"))
    assert data.multi30k(tmp_path).valid == [("Ein Büro.", "An office."), ("Ja", "Yes")]
    (folder / "val.en.gz").write_bytes(gzip.compress(b"One\n"))
    with pytest.raises(data.LoadError, match="val has 2 German and 1 English lines"):
        data.multi30k(tmp_path)
    (folder / "val.en.gz").write_bytes(gzip.compress(b"\xff\xfe"))
    with pytest.raises(data.LoadError, match="not UTF-8"):
        data.multi30k(tmp_path)


def test_gray(tmp_path):
    folder = tmp_path / "gray" / "Set12"
    folder.mkdir(parents=True)
    pixels = np.arange(12, dtype=np.uint8).reshape(3, 4)
    for name in ("02", "01"):
        Image.fromarray(pixels + int(name)).save(folder / f"{name}.png")
    first, second = data.gray(tmp_path)
    assert torch.equal(first, torch.from_numpy(pixels + 1))
    assert torch.equal(second, torch.from_numpy(pixels + 2))
    with pytest.raises(data.LoadError, match="no set 'Set13'"):
        data.gray(tmp_path, "Set13")


@pytest.mark.parametrize(("reader", "module"), [(data.gray, "PIL.Image"), (data.digits, "sklearn.datasets")])
def test_missing_packages_name_the_extra(reader, module, monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(data.LoadError, match=r"pip install 'torchlift\[data\]'"):
        reader(tmp_path) if reader is data.gray else reader()
