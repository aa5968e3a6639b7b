"""A tensor's entries as unsigned integers of their own width. Bits are compared, not values: −0.0 and NaN
stay."""

import numpy as np
import torch
from torch import Tensor

from torchlift.packed.rans import Array

SAMPLE, MANY = 1 << 16, 4096
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
    if flat.stride(0) != 1:  # expanded tensors of one entry, or of none, count as contiguous
        flat = torch.empty(flat.shape, dtype=flat.dtype).copy_(flat)
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
    """The distinct entries in rising order and each entry's place among them; None where there are more.

    Short entries are counted; of long ones a sample gives nearly all; what it missed is added."""
    if bits.itemsize <= 2:
        values = np.flatnonzero(np.bincount(bits, minlength=1)).astype(bits.dtype)
        names = np.zeros(int(values[-1]) + 1 if values.size else 1, np.uint16)
        names[values] = np.arange(values.size)
        return values, names[bits]
    values = np.unique(bits[:: max(1, bits.size // SAMPLE)][: 2 * SAMPLE])
    if (values.size > most // 2 and bits.size > 2 * values.size) or 2 * values.size > bits.size > MANY:
        return None  # as many values as entries, nearly: no palette is worth its values
    while True:
        names = np.searchsorted(values, bits)
        np.minimum(names, values.size - 1, out=names)
        missed = bits[values[names] != bits]
        if not missed.size:
            return values, names
        values = np.union1d(values, missed[: 2 * SAMPLE] if values.size <= MANY else missed)
        if values.size > max(most, MANY):
            return None
