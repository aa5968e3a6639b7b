"""ImageNet, or any folders of large pictures, read one by one."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from torchlift.data.folders import pictures, subfolders
from torchlift.data.sources import LoadError, locate, need

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
VALUES = torch.tensor((0.2175, 0.0188, 0.0045))
VECTORS = torch.tensor(((-0.5675, 0.7192, 0.4009), (-0.5808, -0.0045, -0.8140), (-0.5836, -0.6948, 0.4203)))
"""Of the covariance of the colors of ImageNet, for lighting noise (Krizhevsky et al., 2012)."""
GRAY = torch.tensor((0.299, 0.587, 0.114))


class Pictures(Dataset[tuple[Tensor, int]]):
    """Pictures of a folder with a folder for each class, as normalized 3 × size × size.

    To train (``augment``): a random part of 8 to 100 % of the picture with an aspect between 3/4 and 4/3,
    resized (Gross and Wilber, 2016); brightness, contrast and saturation changed by up to 40 % in random
    order; lighting noise; flips. Else the middle of the picture, its shorter side resized to 8/7 of the size.
    """

    def __init__(self, folder: Path, size: int = 224, augment: bool = False) -> None:
        self.classes = [path.name for path in subfolders(folder) if next(pictures(path), None)]
        if len(self.classes) < 2:
            raise LoadError(f"{folder} needs a folder of pictures for each of two or more classes")
        self.files = [
            (path, label) for label, name in enumerate(self.classes) for path in pictures(folder / name)
        ]
        self.size, self.augment = size, augment

    def __len__(self) -> int:
        """How many there are."""
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """A picture and its class; what is random comes from torch's stream."""
        path, label = self.files[index]
        image = need("pictures", "PIL.Image").open(path).convert("RGB")
        x = self.random_crop(image) if self.augment else self.middle(image)
        x = flipped(lit(colored(x))) if self.augment else x
        return (x - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None], label

    def random_crop(self, image: Any) -> Tensor:
        """A random part, resized."""
        width, height = image.size
        for _ in range(10):
            area = width * height * float(torch.empty(()).uniform_(0.08, 1.0))
            aspect = math.exp(float(torch.empty(()).uniform_(-math.log(4 / 3), math.log(4 / 3))))
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                left = int(torch.randint(width - w + 1, ()))
                top = int(torch.randint(height - h + 1, ()))
                return self.resized(image, (left, top, left + w, top + h))
        return self.middle(image)

    def middle(self, image: Any) -> Tensor:
        """The square in the middle, seven eighths of the shorter side."""
        width, height = image.size
        side = min(width, height) * 7 / 8
        left, top = (width - side) / 2, (height - side) / 2
        return self.resized(image, (left, top, left + side, top + side))

    def resized(self, image: Any, box: tuple[float, float, float, float]) -> Tensor:
        """A box of the picture at the wanted size, by cubic interpolation, in [0, 1]."""
        small = image.resize((self.size, self.size), 3, box)  # 3: bicubic
        return torch.from_numpy(np.array(small, np.float32)).permute(2, 0, 1) / 255


def colored(x: Tensor, most: float = 0.4) -> Tensor:
    """Brightness, contrast and saturation, each by a factor within ``most`` of 1, in random order."""
    for kind in torch.randperm(3).tolist():
        factor = float(torch.empty(()).uniform_(1 - most, 1 + most))
        gray = (GRAY[:, None, None] * x).sum(0, keepdim=True)
        target = (torch.zeros_like(gray), gray.mean().expand_as(gray), gray)[kind]
        x = factor * x + (1 - factor) * target
    return x


def lit(x: Tensor, deviation: float = 0.1) -> Tensor:
    """Noise along the principal colors."""
    return x + (VECTORS @ (deviation * torch.randn(3) * VALUES))[:, None, None]


def flipped(x: Tensor) -> Tensor:
    """Left and right, by a fair coin."""
    return x.flip(2) if bool(torch.randint(2, ())) else x


def imagenet(folder: str | Path | None = None, size: int = 224) -> tuple[Pictures, Pictures]:
    """ImageNet to train on and to validate on: ``imagenet/{train,val}/<class>/*.JPEG``.

    Data sets for a ``DataLoader`` with as many workers as there are cores; ``tl.fit`` takes both.
    """
    where = locate("imagenet", folder, ("imagenet", "ILSVRC2012"), "train")
    return Pictures(where / "train", size, augment=True), Pictures(where / "val", size)
