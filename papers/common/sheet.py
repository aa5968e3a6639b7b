"""Pictures of a record: gray images in rows on one sheet, as a PNG file in base64."""

import base64
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from torchlift.report.pictures import png

GAP, LEAST = 2, 64
Pixels = dict[str, object]
"""A small gray image as it is kept in a journal."""


def pixels(image: Tensor) -> Pixels:
    """The image, values from 0 to 1, in bytes."""
    flat = image.detach().squeeze().clamp(0, 1).mul(255).round().to(torch.uint8)
    return {"size": list(flat.shape), "bytes": base64.b64encode(bytes(flat.flatten().tolist())).decode()}


def image_of(kept: Pixels) -> Tensor:
    """The image that was kept, small ones enlarged."""
    size, data = kept["size"], kept["bytes"]
    assert isinstance(size, list)
    assert isinstance(data, str)
    image = torch.tensor(list(base64.b64decode(data)), dtype=torch.uint8).reshape(size) / 255
    times = max(1, LEAST // max(size))
    return image.repeat_interleave(times, 0).repeat_interleave(times, 1)


def sheet(name: str, rows: Sequence[Sequence[Pixels]]) -> dict[str, str]:
    """All images on white, an entry of a record's ``images``."""
    lines = [torch.cat([pad(image_of(one), (0, GAP, 0, GAP), value=1.0) for one in row], 1) for row in rows]
    file = png(torch.cat(lines), 0.0, 1.0)
    assert file is not None
    return {"name": name, "png": base64.b64encode(file).decode()}
