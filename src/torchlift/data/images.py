"""Images in the formats they are distributed in, as bytes."""

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchlift.data.cache import cached
from torchlift.data.sources import LoadError, locate, need, read_decompressed, variant
from torchlift.data.splits import Pair

PIXELS = 3 * 32 * 32


def cifar10(folder: str | Path | None = None) -> tuple[Pair, Pair]:
    """CIFAR-10: 50,000 and 10,000 images, uint8 n × 3 × 32 × 32, with labels; the official order.

    Reads the "binary version", plain or compressed (``cifar10/data_batch_1.bin.xz``, …). Decompressing
    takes seconds, so a decoded copy is kept in the cache folder.
    """
    where = locate("cifar10", folder, ("cifar10", "cifar-10-batches-bin"), "data_batch_1.bin")
    train = [f"data_batch_{number}.bin" for number in range(1, 6)]
    return records(where, "cifar10-train", train), records(where, "cifar10-test", ["test_batch.bin"])


def cifar100(folder: str | Path | None = None) -> tuple[Pair, Pair]:
    """CIFAR-100: 50,000 and 10,000 images, uint8 n × 3 × 32 × 32, with their fine labels; the official order.

    Reads the "binary version", plain or compressed (``cifar100/train.bin``, ``cifar100/test.bin``).
    """
    where = locate("cifar100", folder, ("cifar100", "cifar-100-binary"), "train.bin")
    train, test = (
        records(where, f"cifar100-{split}", [f"{split}.bin"], labels=2) for split in ("train", "test")
    )
    return train, test


def records(where: Path, name: str, files: list[str], labels: int = 1) -> Pair:
    """Images and the last of their labels of CIFAR's binary files, one after another."""
    size = labels + PIXELS

    def decode() -> NDArray[Any]:
        with ThreadPoolExecutor() as pool:
            contents = list(pool.map(lambda file: read_decompressed(where, file), files))
        for file, label in zip(files, contents, strict=True):
            if not label or len(label) % size:
                raise LoadError(
                    f"{where / file}: {len(label)} bytes are not records of {size}; fetch it again"
                )
        return np.concatenate([np.frombuffer(label, np.uint8).reshape(-1, size) for label in contents])

    table = cached(name, [variant(where, file) for file in files], decode)
    images = np.ascontiguousarray(table[:, labels:]).reshape(-1, 3, 32, 32)
    return torch.from_numpy(images), torch.from_numpy(table[:, labels - 1].astype(np.int64))


def mnist(folder: str | Path | None = None) -> tuple[Pair, Pair]:
    """MNIST: 60,000 and 10,000 images, uint8 n × 1 × 28 × 28, with labels (``MNIST/raw/*-ubyte.gz``)."""
    return idx_pairs(locate("mnist", folder, ("MNIST/raw", "mnist"), "train-images-idx3-ubyte"))


def fashion_mnist(folder: str | Path | None = None) -> tuple[Pair, Pair]:
    """Fashion-MNIST in MNIST's format; Debian's package has it in ``/usr/share/datasets/fashion-mnist``."""
    folders = ("fashion-mnist", "FashionMNIST/raw")
    return idx_pairs(locate("fashion_mnist", folder, folders, "train-images-idx3-ubyte"))


def idx_pairs(where: Path) -> tuple[Pair, Pair]:
    """Training and test pairs of the four files of MNIST's layout."""

    def pair(prefix: str) -> Pair:
        images, labels = idx(where, f"{prefix}-images-idx3-ubyte"), idx(where, f"{prefix}-labels-idx1-ubyte")
        if len(images) != len(labels):
            raise LoadError(
                f"{where}: {len(images)} {prefix} images but {len(labels)} labels; fetch them again"
            )
        return images.unsqueeze(1), labels.long()

    return pair("train"), pair("t10k")


def idx(where: Path, file: str) -> Tensor:
    """An idx file: two zero bytes, type 8 (bytes), rank, big-endian sizes, then the values."""
    data = read_decompressed(where, file)
    rank = data[3] if len(data) > 3 else 0
    shape = np.frombuffer(data[4 : 4 + 4 * rank], ">u4").tolist() if len(data) >= 4 + 4 * rank else []
    if data[:3] != b"\x00\x00\x08" or len(data) != 4 + 4 * rank + math.prod(shape):
        raise LoadError(f"{where / file} is not a complete idx file of bytes; fetch it again")
    return torch.from_numpy(np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape).copy())


def gray(
    folder: str | Path | None = None, name: Literal["Set12", "BSD68", "Train400"] = "Set12"
) -> list[Tensor]:
    """Gray natural images, uint8 height × width each, in the order of their file names (``gray/Set12``)."""
    file = {"Set12": "01.png", "BSD68": "test001.png", "Train400": "test_001.png"}.get(name)
    if file is None:
        raise LoadError(f"gray: no set {name!r}; use 'Set12', 'BSD68' or 'Train400'")
    pillow = need("gray", "PIL.Image")
    where = locate("gray", folder, (f"gray/{name}", f"gray/{name}", name), file)
    images: list[Tensor] = []
    for path in sorted(where.glob("*.png")):
        with pillow.open(path) as image:
            images.append(torch.from_numpy(np.array(image.convert("L"))))
    return images


def statistics(images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel of bytes, on the scale [0, 1]."""
    counts = torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in images.unbind(1)])
    levels = torch.arange(256, dtype=torch.float64) / 255
    weights = counts.double() / counts.sum(1, keepdim=True)
    mean = weights @ levels
    return mean, (weights @ levels.square() - mean.square()).sqrt()


def normalize(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """(x / 255 − mean) / std for each channel, as float32."""
    scale, shift = (1 / (255 * std)).float(), (-mean / std).float()
    return images.float().mul_(scale.view(-1, 1, 1)).add_(shift.view(-1, 1, 1))
