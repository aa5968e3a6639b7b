"""Data by name."""

import difflib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from torchlift.data.arrays import read_arrays
from torchlift.data.folders import MeanStd, holds_pictures, pictures_schema, read_pictures
from torchlift.data.grids import shortest_paths
from torchlift.data.images import cifar10, cifar100, fashion_mnist, mnist, normalize, statistics
from torchlift.data.small import digits, iris
from torchlift.data.sources import LoadError
from torchlift.data.splits import Kind, Pair, Splits, hold_out, split
from torchlift.data.synthetic import teacher_student
from torchlift.data.tables import read_table
from torchlift.data.text import Text, ptb, windows
from torchlift.data.toy import toy_text

Folder = str | Path | None


def load(
    name: str, folder: Folder = None, seed: int = 0, kind: Kind | None = None, scale: MeanStd | None = None
) -> Splits:
    """Data by a name of ``NAMES``, or of files, ready to fit.

    Files: an ``.npz`` file or a folder of ``.npy`` files (:func:`read_arrays`), a ``.csv`` table
    (:func:`read_table`), a folder with a folder of pictures for each class (:func:`read_pictures`). Images
    are normalized channel by channel with the statistics of the training part. ``seed`` draws what is
    generated, and which training samples are set aside for validation. ``kind``: what the targets of a
    table are, where whole numbers may be classes or values. ``scale``: the mean and standard deviation of
    the channels that a network was trained with, for a folder of pictures.
    """
    if name in NAMES:
        return NAMES[name](folder, seed)
    path = Path(name).expanduser()
    if name.endswith(".csv"):
        return read_table(path, seed, kind)
    if path.is_dir() and not any(path.glob("*.npy")) and holds_pictures(path):
        return read_pictures(path, seed, scale)
    if name.endswith(".npz") or path.is_dir():
        return read_arrays(name, seed)
    near = difflib.get_close_matches(name, NAMES, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(NAMES)},"
    raise LoadError(f"no data named {name!r}; {hint} or give an .npz or .csv file or a folder")


def images(
    read: Callable[[Folder], tuple[Pair, Pair]],
    fraction: float,
    classes: str,
    folder: Folder,
    seed: int,
) -> Splits:
    """An image set with a fraction of its training part set aside, normalized."""
    everything, (x_test, y_test) = read(folder)
    (x, y), (x_valid, y_valid) = hold_out(everything, fraction, seed)
    mean, std = statistics(x)
    scale = partial(normalize, mean=mean, std=std)
    schema = pictures_schema(tuple(x.shape[1:]), mean, std, classes.split())
    return Splits((scale(x), y), (scale(x_valid), y_valid), (scale(x_test), y_test), "classification", schema)


def text_splits(text: Text, length: int) -> Splits:
    """Next-token pairs of a text."""
    train, valid, test = (windows(split, length) for split in (text.train, text.valid, text.test))
    return Splits(train, valid, test, "text")


NAMES: dict[str, Callable[[Folder, int], Splits]] = {
    "digits": lambda _, seed: digits(seed),
    "iris": lambda _, seed: iris(seed),
    "teacher-student": lambda _, seed: teacher_student(7, seed=seed),
    "teacher-student-8": lambda _, seed: teacher_student(8, seed=seed),
    "teacher-student-9": lambda _, seed: teacher_student(9, seed=seed),
    "shortest-paths": lambda _, seed: split(*shortest_paths(2_000, 6, seed), "binary", seed),
    "toy-text": lambda _, seed: text_splits(toy_text(seed=seed), 64),
    "cifar10": partial(images, cifar10, 0.2, "airplane automobile bird cat deer dog frog horse ship truck"),
    "cifar100": partial(images, cifar100, 0.2, " ".join(map(str, range(100)))),
    "mnist": partial(images, mnist, 1 / 6, "0 1 2 3 4 5 6 7 8 9"),
    "fashion-mnist": partial(
        images, fashion_mnist, 1 / 6, "T-shirt trouser pullover dress coat sandal shirt sneaker bag boot"
    ),
    "ptb-char": lambda folder, _: text_splits(ptb(folder, "char"), 128),
    "ptb-word": lambda folder, _: text_splits(ptb(folder, "word"), 35),
}
"""The data there is by name; those that come last need files."""
