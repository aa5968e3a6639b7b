"""A tensor's entries as unsigned integers of their own width. Bits are compared, not values: −0.0 and NaN
stay."""

import numpy as np
import torch
from torch import Tensor

from torchlift.packed.rans import Array

SAMPLE = 1 << 16
BITS = {1: np.dtype("<u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4"), 8: np.dtype("<u8"), 16: np.dtype("<u8")}

DTYPES: dict[str, torch.dtype] = {
    str(kind).removeprefix("torch."): kind
    for kind in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    )
}  # fmt: skip
"""Their order is part of the file format: new ones go to the end."""


def bits_of(tensor: Tensor) -> Array:
    """The entries as unsigned integers of their own width (complex128 as pairs)."""
    flat = tensor.detach().cpu().contiguous().flatten()
    return flat.view(torch.uint8).numpy().view(BITS[flat.element_size()])


def tensor_of(bits: Array, kind: torch.dtype, shape: list[int]) -> Tensor:
    """The tensor with these bits; it takes over their memory."""
    if not bits.size:
        return torch.empty(shape, dtype=kind)
    octets = torch.from_numpy(bits.view(np.uint8))
    if kind == torch.bool:
        octets = octets.ne(0)
    return octets.view(kind).reshape(shape)


def distinct(bits: Array, most: int) -> tuple[Array, Array] | None:
    """The distinct entries in rising order and each entry's place among them; None where there are more than
    ``most``. A sample gives nearly all of them; what it missed is added until nothing is missing."""
    values = np.unique(bits[:: max(1, bits.size // SAMPLE)][: 2 * SAMPLE])
    while values.size <= most:
        names = np.searchsorted(values, bits)
        np.minimum(names, values.size - 1, out=names)
        missed = bits[values[names] != bits]
        if not missed.size:
            return values, names
        values = np.union1d(values, np.unique(missed[: 2 * SAMPLE]))
    return None
