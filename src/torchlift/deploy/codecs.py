"""Tensors as bytes and back, exactly; the smallest of several encodings is kept.

raw:      the entries, least byte first.
sparse:   one bit per entry (1 where it is not zero), then the entries that are not zero.
palette:  the distinct values, then one byte per entry that names its value (at most 256 of them).

Every stream is deflated where that helps. Bits are compared, not values: −0.0 and NaN come back as they were.
"""

import zlib
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from torchlift.errors import TorchliftError

Codec = Literal["raw", "sparse", "palette"]

Bits = np.ndarray[Any, Any]

BITS = {1: np.dtype("<u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4"), 8: np.dtype("<u8"), 16: np.dtype("<u8")}

DTYPES: dict[str, torch.dtype] = {
    str(kind).removeprefix("torch."): kind
    for kind in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    )
}  # fmt: skip


class PackedError(TorchliftError):
    """A file that is not a whole, honest torchlift model."""


def bits_of(tensor: Tensor) -> Bits:
    """The entries as unsigned integers of their own width (complex128 as pairs)."""
    flat = tensor.detach().cpu().contiguous().flatten()
    return flat.view(torch.uint8).numpy().view(BITS[flat.element_size()])


def encode(tensor: Tensor) -> tuple[Codec, list[bytes], list[int]]:
    """The smallest encoding of a tensor: its name, its streams, and their sizes before deflation."""
    bits = bits_of(tensor)
    choices: dict[Codec, list[bytes]] = {"raw": [bits.tobytes()]}
    if bits.size and not bits.all():
        choices["sparse"] = [np.packbits(bits != 0).tobytes(), bits[bits != 0].tobytes()]
    values, index = np.unique(bits, return_inverse=True) if bits.size > 1 else (bits, bits)
    if bits.size > 1 and values.size <= 256:
        choices["palette"] = [values.tobytes(), index.astype(np.uint8).tobytes()]
    packed: dict[Codec, list[bytes]] = {
        name: [deflate(s) for s in streams] for name, streams in choices.items()
    }
    best = min(packed, key=lambda name: sum(map(len, packed[name])))
    return best, packed[best], [len(stream) for stream in choices[best]]


def deflate(stream: bytes) -> bytes:
    """A tag byte and the stream, compressed where that makes it smaller."""
    small = zlib.compress(stream, 9)
    return b"z" + small if len(small) < len(stream) else b"-" + stream


def inflate(stream: bytes, size: int) -> bytes:
    """The inverse of :func:`deflate`; never makes more than ``size`` bytes."""
    if stream[:1] == b"-":
        found = stream[1:]
    elif stream[:1] == b"z":
        engine = zlib.decompressobj()
        try:
            found = engine.decompress(stream[1:], size + 1)
        except zlib.error as error:
            raise PackedError(f"a compressed stream is damaged ({error}).") from error
    else:
        raise PackedError("a stream has an unknown tag.")
    if len(found) != size:
        raise PackedError(f"a stream has {len(found)} bytes where {size} were promised.")
    return found


def decode(codec: str, streams: list[bytes], sizes: list[int], dtype: str, shape: list[int]) -> Tensor:
    """The tensor again; every length is checked before anything is made."""
    if dtype not in DTYPES:
        raise PackedError(f"dtype {dtype!r} is not known.")
    kind = DTYPES[dtype]
    unit, count = BITS[kind.itemsize], entries(shape) * max(1, kind.itemsize // 8)
    if len(streams) != len(sizes) or len(streams) != (1 if codec == "raw" else 2):
        raise PackedError(f"encoding {codec!r} with {len(streams)} streams is not known.")
    if codec == "raw":
        bits = np.frombuffer(inflate(streams[0], count * unit.itemsize), unit)
    elif codec == "sparse":
        bits = from_sparse(streams[0], streams[1], unit, count)
    elif codec == "palette":
        bits = from_palette(streams[0], streams[1], sizes[0], unit, count)
    else:
        raise PackedError(f"encoding {codec!r} is not known.")
    if not count:
        return torch.empty(shape, dtype=kind)
    return torch.from_numpy(bits.view(np.uint8).copy()).view(kind).reshape(shape)


def from_sparse(mask: bytes, kept: bytes, unit: Any, count: int) -> Bits:
    """Entries from their mask and the values that are not zero."""
    places = np.unpackbits(np.frombuffer(inflate(mask, -(-count // 8)), np.uint8), count=count).astype(bool)
    bits = np.zeros(count, unit)
    bits[places] = np.frombuffer(inflate(kept, int(places.sum()) * unit.itemsize), unit)
    return bits


def from_palette(palette: bytes, index: bytes, size: int, unit: Any, count: int) -> Bits:
    """Entries from the distinct values and the name of each entry's."""
    if type(size) is not int or not 0 < size <= 256 * unit.itemsize or size % unit.itemsize:
        raise PackedError("a palette has an impossible size.")
    values = np.frombuffer(inflate(palette, size), unit)
    names = np.frombuffer(inflate(index, count), np.uint8)
    if names.size and int(names.max()) >= values.size:
        raise PackedError("an entry names a value its palette does not have.")
    return values[names]


def entries(shape: list[int]) -> int:
    """The number of entries of a shape that makes sense."""
    count = 1
    for n in shape:
        if type(n) is not int or not 0 <= n < 2**40:
            raise PackedError(f"{shape} is no shape.")
        count *= n
    return count
