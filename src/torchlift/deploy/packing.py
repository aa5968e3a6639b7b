"""``save`` and ``load``: one small file that holds a model, and nothing that runs.

    offset  bytes  content
    0       8      b"TLIFT" and the version, 3 bytes
    8       8      length n of the header, unsigned, least byte first
    16      n      header, deflated JSON: the tree or graph of the model, and where each tensor's streams lie
    16 + n  …      streams, one after the other
    end−32  32     SHA-256 of everything before

Decoding gives exactly the same weights. Whatever is truncated, changed, oversize or unknown is refused.
"""

import hashlib
import json
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from torchlift import files
from torchlift.core.weights import refresh_flat_weights
from torchlift.deploy.codecs import DTYPES, PackedError, decode, encode, entries
from torchlift.deploy.probing import Example
from torchlift.deploy.programs import Program, trace
from torchlift.deploy.trees import Reader, Writer
from torchlift.errors import TorchliftError

MAGIC = b"TLIFT001"
LIMIT = 8 * 2**30
HEADER = 64 * 2**20


def save(model: nn.Module, path: str | os.PathLike[str], example: Example | None = None) -> int:
    """Write the model to a packed file; its size in bytes.

    Zeros cost a bit each, repeated values a byte at most. With an ``example`` input the computation itself is
    stored, so that :func:`load` needs none of the model's classes.
    """
    data = packed(model, example)
    files.write(path, data)
    return len(data)


def load(
    path: str | os.PathLike[str], *, classes: Iterable[type[nn.Module]] = (), limit: int = LIMIT
) -> nn.Module:
    """The model in a packed file, in evaluation mode; ``classes`` are module classes it may use.

    ``limit``: the most bytes its tensors may take in memory.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise PackedError(f"{path} cannot be read: {error.strerror}.") from error
    try:
        return unpacked(data, classes, limit)
    except PackedError as error:
        raise PackedError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        raise PackedError(f"{path}: the header makes no sense ({type(error).__name__}: {error}).") from error


def packed(model: nn.Module, example: Example | None = None) -> bytes:
    """The file's content."""
    writer = Writer()
    body = model if example is None else trace(model, example)
    header: dict[str, Any] = {"model": writer.module(body)}
    streams: list[bytes] = []
    header["tensors"] = [describe(tensor, streams) for tensor in writer.tensors]
    text = zlib.compress(json.dumps(header, separators=(",", ":"), allow_nan=False).encode(), 9)
    data = b"".join([MAGIC, len(text).to_bytes(8, "little"), text, *streams])
    return data + hashlib.sha256(data).digest()


def describe(tensor: Tensor, streams: list[bytes]) -> dict[str, Any]:
    """A tensor's line in the header; its streams are appended."""
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise TorchliftError(f"save: tensors of {tensor.dtype} have no packed form.")
    codec, made, sizes = encode(tensor)
    streams.extend(made)
    return {
        "dtype": name,
        "shape": list(tensor.shape),
        "codec": codec,
        "streams": [[len(stream), size] for stream, size in zip(made, sizes, strict=True)],
    }


def tensor_bytes(model: nn.Module) -> int:
    """What the model's tensors take in a packed file, tied ones once."""
    unique = {(t.data_ptr(), t.shape, t.dtype, t.stride()): t for t in model.state_dict().values()}
    return sum(len(stream) for tensor in unique.values() for stream in encode(tensor.detach().cpu())[1])


def unpacked(data: bytes, classes: Iterable[type[nn.Module]] = (), limit: int = LIMIT) -> nn.Module:
    """The model in a file's content."""
    if len(data) < len(MAGIC) + 8 + 32 or data[:5] != MAGIC[:5]:
        raise PackedError("this is not a torchlift model file.")
    if data[:8] != MAGIC:
        raise PackedError(
            f"version {data[5:8]!r} of the format is not known; this torchlift reads {MAGIC[5:]!r}."
        )
    if hashlib.sha256(data[:-32]).digest() != data[-32:]:
        raise PackedError("the checksum is wrong: the file is truncated or was changed.")
    end = 16 + int.from_bytes(data[8:16], "little")
    if end > len(data) - 32:
        raise PackedError("the header is longer than the file.")
    header = json.loads(opened(data[16:end]))
    tensors = read(header["tensors"], data[end:-32], limit)
    model = Reader(tensors, [Program, *classes]).module(header["model"]).eval()
    refresh_flat_weights(model)
    return model


def opened(text: bytes) -> bytes:
    """The header, if it is of a size that headers have."""
    engine = zlib.decompressobj()
    try:
        found = engine.decompress(text, HEADER)
    except zlib.error as error:
        raise PackedError(f"the header is damaged ({error}).") from error
    if not engine.eof:
        raise PackedError(f"the header is larger than {HEADER} bytes.")
    return found


def read(lines: list[dict[str, Any]], payload: bytes, limit: int) -> list[Tensor]:
    """All tensors; what they will take in memory is summed up first."""
    total = sum(entries(line["shape"]) * DTYPES[line["dtype"]].itemsize for line in lines)
    if total > limit:
        raise PackedError(
            f"the tensors would take about {total / 2**30:.0f} GiB; raise limit= if that is right."
        )
    tensors: list[Tensor] = []
    at = 0
    for line in lines:
        streams: list[bytes] = []
        for length, _ in line["streams"]:
            if type(length) is not int or not 0 <= length <= len(payload) - at:
                raise PackedError("a stream lies outside the file.")
            streams.append(payload[at : at + length])
            at += length
        sizes = [size for _, size in line["streams"]]
        tensors.append(decode(line["codec"], streams, sizes, line["dtype"], line["shape"]))
    if at != len(payload):
        raise PackedError("there are bytes after the last stream.")
    return tensors
