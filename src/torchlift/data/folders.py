"""Folders of pictures: a folder for each class, perhaps inside ``train``, ``valid`` and ``test``."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchlift.data.images import normalize, statistics
from torchlift.data.sources import LoadError, need
from torchlift.data.splits import Pair, Splits, hold_out

KINDS = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".pgm", ".ppm")
PARTS = {"train": ("train",), "test": ("test",), "valid": ("valid", "val", "validation")}
MeanStd = tuple[Sequence[float], Sequence[float]]
"""Mean and standard deviation of the channels, of pixels from 0 to 1."""
HELD_OUT = {"test": 0.2, "valid": 0.125}


def holds_pictures(folder: Path) -> bool:
    """Whether there are pictures in folders inside."""
    directories = [below for inner in subfolders(folder) for below in (inner, *subfolders(inner))]
    return any(next(pictures(folder_inside), None) for folder_inside in directories)


def subfolders(folder: Path) -> list[Path]:
    """The folders in a folder, hidden ones left out."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def pictures(folder: Path) -> Iterator[Path]:
    """The pictures in a folder, by name."""
    return (path for path in sorted(folder.iterdir()) if path.suffix.lower() in KINDS)


def read_pictures(folder: str | Path, seed: int = 0, scale: MeanStd | None = None) -> Splits:
    """Pictures and the classes their folders are named after, normalized by the training part.

    All have to be of one size; where any has colors, all get three channels. Parts that are missing are set
    aside from the training part by ``seed``. ``scale``: mean and standard deviation of the channels, of
    pixels from 0 to 1, that a trained network was used to.
    """
    root = Path(folder).expanduser()
    inside = {path.name.lower(): path for path in subfolders(root)}
    splits = {split: inside[name] for split, names in PARTS.items() for name in names if name in inside}
    directories = splits if "train" in splits else {"train": root}
    classes = [path.name for path in subfolders(directories["train"]) if next(pictures(path), None)]
    if len(classes) < 2:
        raise LoadError(f"{directories['train']} needs a folder of pictures for each of two or more classes")
    pairs = {split: read_split(directory, classes) for split, directory in directories.items()}
    colors = any(x.shape[1] == 3 for x, _ in pairs.values())
    pairs = {split: (x.expand(-1, 3, -1, -1) if colors else x, y) for split, (x, y) in pairs.items()}
    sizes = {split: tuple(x.shape[1:]) for split, (x, _) in pairs.items()}
    if len(set(sizes.values())) > 1:
        raise LoadError(f"{root}: pictures of the splits differ in size: {sizes}; make them one size")
    for split, fraction in HELD_OUT.items():
        if split not in pairs:
            pairs["train"], pairs[split] = hold_out(pairs["train"], fraction, seed)
    mean, std = statistics(pairs["train"][0]) if scale is None else channels_of(scale, sizes["train"][0])
    std = torch.where(std > 0, std, 1.0)
    scaled = partial(normalize, mean=mean, std=std)
    schema = pictures_schema(sizes["train"], mean, std, classes)
    train, valid, test = ((scaled(pairs[split][0]), pairs[split][1]) for split in ("train", "valid", "test"))
    return Splits(train, valid, test, "classification", schema)


def channels_of(scale: MeanStd, channels: int) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation for each channel; a single number is for all."""
    for name, values in zip(("mean", "std"), scale, strict=True):
        if len(values) not in (1, channels):
            raise LoadError(f"{name} has {len(values)} numbers, the pictures have {channels} channels")
    if min(scale[1]) <= 0:
        raise LoadError(f"std must be above 0, not {min(scale[1])}")
    mean, std = (torch.tensor(values, dtype=torch.float64).expand(channels) for values in scale)
    return mean, std


def pictures_schema(shape: tuple[int, ...], mean: Tensor, std: Tensor, classes: list[str]) -> dict[str, Any]:
    """What a model of pictures must be given (:mod:`torchlift.data.schema`)."""
    scale = {"mean": mean.flatten().tolist(), "std": std.flatten().tolist()}
    return {"kind": "pictures", "shape": list(shape), **scale, "classes": classes}


def read_split(folder: Path, classes: list[str]) -> Pair:
    """All pictures below a folder, as bytes, and their classes."""
    strange = [path.name for path in subfolders(folder) if path.name not in classes]
    if strange and any(next(pictures(folder / name), None) for name in strange):
        raise LoadError(f"{folder} has classes that training data do not have: {', '.join(strange)}")
    images: list[Tensor] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        for path in pictures(folder / name) if (folder / name).is_dir() else ():
            image = read_picture(path)
            if images and image.shape[1:] != images[0].shape[1:]:
                ours, theirs = tuple(images[0].shape[1:]), tuple(image.shape[1:])
                raise LoadError(f"{path}: {theirs} pixels, others have {ours}; make them one size")
            images.append(image)
            labels.append(label)
    if len(images) < 4:
        raise LoadError(f"{folder} holds {len(images)} pictures; give more")
    channels = max(len(image) for image in images)
    return torch.stack([image.expand(channels, -1, -1) for image in images]), torch.tensor(labels)


def read_picture(path: Path) -> Tensor:
    """Channels × height × width as bytes: one channel for gray pictures, three for others."""
    pillow = need("pictures", "PIL.Image")
    try:
        with pillow.open(path) as picture:
            array = np.array(picture.convert("L" if picture.mode in ("1", "L", "LA", "I;16") else "RGB"))
    except (OSError, ValueError, SyntaxError) as error:
        raise LoadError(f"{path} cannot be read as a picture ({error}); remove or replace it") from error
    return torch.from_numpy(array if array.ndim == 3 else array[:, :, None]).permute(2, 0, 1).contiguous()
