"""Arrays and pictures read: .npy, .pt, images."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor


def read_array(path: Path) -> Tensor:
    """A .npy array, a .pt tensor, or an image as (channels, rows, columns) in [0, 1]."""
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    try:
        if path.suffix == ".npy":
            return torch.from_numpy(np.load(path, allow_pickle=False))
        if path.suffix == ".pt":
            tensor = torch.load(path, weights_only=True)
            if not isinstance(tensor, Tensor):
                raise ValueError(f"it holds a {type(tensor).__name__}, not a tensor")
            return tensor
        return _image(path)
    except ModuleNotFoundError:
        raise
    except Exception as error:  # readers of arrays and images raise anything on damaged files
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"{path} is not an array (.npy, .pt) or an image that can be read: {reason}"
        ) from error


def _image(path: Path) -> Tensor:
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{path}: pictures need pillow; pip install 'torchlift[data]', or give a .npy array", name="PIL"
        ) from error
    with Image.open(path) as image:
        gray = image.mode in ("1", "L", "I", "I;16", "F")
        array = np.array(image.convert("L" if gray else "RGB"), dtype=np.float32) / 255
    return torch.from_numpy(array)[None] if gray else torch.from_numpy(array).permute(2, 0, 1).contiguous()
