"""Arrays and pictures in and out: .npy, .pt, images; PNG without an image library."""

import struct
import zlib
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


def png(image: Tensor, low: float | None = None, high: float | None = None) -> bytes | None:
    """A picture of one sample, (h, w), (1, h, w) or (3, h, w), from low (black) to high; else None."""
    if image.ndim == 2:
        image = image[None]
    if image.ndim != 3 or image.shape[0] not in (1, 3) or min(image.shape[1:]) < 2:
        return None
    image = image.detach().double().cpu()
    bottom = float(image.min()) if low is None else low
    top = float(image.max()) if high is None else high
    scaled = ((image - bottom) / max(top - bottom, 1e-12)).clamp(0, 1).mul(255).round().to(torch.uint8)
    rows = scaled.permute(1, 2, 0).contiguous().numpy()
    raw = b"".join(b"\x00" + row.tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", rows.shape[1], rows.shape[0], 8, 0 if len(image) == 1 else 2, 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(raw, 9)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
