"""Data for the papers' experiments: readers of files you have, and data that needs none."""

from torchlift.data.arrays import read_arrays
from torchlift.data.augment import crop_flip, crop_flip_cutout, cutout
from torchlift.data.folders import read_pictures
from torchlift.data.grids import curriculum, f1, shortest_paths
from torchlift.data.imagenet import Pictures, imagenet
from torchlift.data.images import cifar10, cifar100, fashion_mnist, gray, mnist, normalize, statistics
from torchlift.data.loading import NAMES, load
from torchlift.data.small import digits, iris, iris_raw
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
    "Pictures",
    "Splits",
    "Text",
    "Translations",
    "cifar10",
    "cifar100",
    "crop_flip",
    "crop_flip_cutout",
    "curriculum",
    "cutout",
    "digits",
    "f1",
    "fashion_mnist",
    "gray",
    "imagenet",
    "iris",
    "iris_raw",
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
