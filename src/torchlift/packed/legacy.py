"""The first version of the format, read only: files of 2026 still load.

    offset  bytes  content
    0       8      b"TLIFT001"
    8       8      length n of the header, unsigned, least byte first
    16      n      header, deflated JSON: the tree or graph of the model, and where each tensor's streams lie
    16 + n  …      streams, one after the other, each deflated where that helped
    end−32  32     SHA-256 of everything before

raw:      the entries, least byte first.
sparse:   one bit per entry (1 where it is not zero), then the entries that are not zero.
palette:  the distinct values, then one byte per entry that names its value (at most 256 of them).
"""

import zlib
from typing import Any

import numpy as np
from torch import Tensor

from torchlift.packed.budget import Budget, PackedError, product
from torchlift.packed.byteflow import Source
from torchlift.packed.elements import BITS, DTYPES, tensor_of
from torchlift.packed.rans import Array


def read(lines: Any, payload: memoryview, budget: Budget) -> list[Tensor]:
    """All tensors; each is paid for before it is made."""
    source = Source(payload)
    tensors: list[Tensor] = []
    for line in lines:
        streams = [bytes(source.bytes(length)) for length, _ in line["streams"]]
        sizes = [size for _, size in line["streams"]]
        count = product(line["shape"])
        budget.take(1024 + count * DTYPES[line["dtype"]].itemsize, "a tensor")
        with budget.lend(10 * count + 2 * sum(map(len, streams)), "a tensor's streams"):
            tensors.append(decode(line["codec"], streams, sizes, line["dtype"], line["shape"]))
    source.close()
    return tensors


def inflate(stream: bytes, size: int) -> bytes:
    """A tag byte and the stream, deflated or not; never makes more than ``size`` bytes."""
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
    unit, count = BITS[kind.itemsize], product(shape) * max(1, kind.itemsize // 8)
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
    return tensor_of(bits.copy(), kind, shape)


def from_sparse(mask: bytes, kept: bytes, unit: Any, count: int) -> Array:
    """Entries from their mask and the values that are not zero."""
    places = np.unpackbits(np.frombuffer(inflate(mask, -(-count // 8)), np.uint8), count=count).astype(bool)
    bits = np.zeros(count, unit)
    bits[places] = np.frombuffer(inflate(kept, int(places.sum()) * unit.itemsize), unit)
    return bits


def from_palette(palette: bytes, index: bytes, size: int, unit: Any, count: int) -> Array:
    """Entries from the distinct values and the name of each entry's."""
    if type(size) is not int or not 0 < size <= 256 * unit.itemsize or size % unit.itemsize:
        raise PackedError("a palette has an impossible size.")
    values = np.frombuffer(inflate(palette, size), unit)
    names = np.frombuffer(inflate(index, count), np.uint8)
    if names.size and int(names.max()) >= values.size:
        raise PackedError("an entry names a value its palette does not have.")
    return values[names]
