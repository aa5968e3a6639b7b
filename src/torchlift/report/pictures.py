"""Tensors as PNG files, without an image library."""

import struct
import zlib

import torch
from torch import Tensor


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
