"""Data for the papers' experiments: readers of files you have, and data that needs none."""

from torchlift.data.arrays import read_arrays
from torchlift.data.augment import crop_flip
from torchlift.data.folders import read_pictures
from torchlift.data.grids import curriculum, f1, shortest_paths
from torchlift.data.images import cifar10, fashion_mnist, gray, mnist, normalize, statistics
from torchlift.data.loading import NAMES, load
from torchlift.data.small import digits, iris
from torchlift.data.sources import LoadError
from torchlift.data.splits import Kind, Pair, Splits, split
from torchlift.data.synthetic import teacher_student
from torchlift.data.tables import read_table
from torchlift.data.text import Text, Translations, multi30k, ptb, windows
from torchlift.data.toy import toy_entropy, toy_text

__all__ = [
    "NAMES",
    "Kind",
    "LoadError",
    "Pair",
    "Splits",
    "Text",
    "Translations",
    "cifar10",
    "crop_flip",
    "curriculum",
    "digits",
    "f1",
    "fashion_mnist",
    "gray",
    "iris",
    "load",
    "mnist",
    "multi30k",
    "normalize",
    "ptb",
    "read_arrays",
    "read_pictures",
    "read_table",
    "shortest_paths",
    "split",
    "statistics",
    "teacher_student",
    "toy_entropy",
    "toy_text",
    "windows",
]
