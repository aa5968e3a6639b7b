"""``save`` and ``load``: one small file that holds a model, and nothing that runs.

    offset  bytes  content
    0       8      b"TLIFT" and the version of the format, b"002"
    8       1      version of the entropy coder, 1
    9       1      seal: 0 SHA-256, 1 HMAC-SHA-256 with the writer's key
    10      2      lanes of the coder
    12      4      length of the header
    16      4      length of the plan
    20      4      length of the plan when inflated
    24      8      length of the raw bytes
    32      …      header: deflated JSON, the tree or graph of the model, its tensors by number
    …       …      plan: deflated numbers, the tensors' types, shapes, forms, palettes, frequencies
    …       …      raw bytes: what no code makes smaller
    …       …      code: a 32-bit state per lane, then 16-bit words
    end−32  32     seal of everything before

Numbers are unsigned, least byte first. Decoding gives exactly the same weights. Whatever is truncated,
changed, oversize or unknown is refused.
"""

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from torchlift import files
from torchlift.core.weights import refresh_flat_weights
from torchlift.deploy import legacy, sealing, tensors
from torchlift.deploy.budget import Budget, PackedError, default_limit
from torchlift.deploy.classes import Kind
from torchlift.deploy.codecs import inflate
from torchlift.deploy.probing import Example
from torchlift.deploy.programs import Program, verify
from torchlift.deploy.readers import Reader
from torchlift.deploy.tracing import trace
from torchlift.deploy.trees import Writer
from torchlift.deploy.vetting import vet

NAME, VERSION, FIRST = b"TLIFT", b"002", b"001"
CODER = 1
FRONT = struct.Struct("<8sBBHIIIQ")
HEADER = 64 * 2**20
OBJECTS = 80
"""Bytes of memory per byte of JSON, about, when it is parsed and then built into attributes."""


class Saved(int):
    """The size of a file in bytes; ``digest`` is the SHA-256 of its content, in hexadecimal."""

    digest: str


def save(
    model: nn.Module,
    path: str | os.PathLike[str],
    example: Example | None = None,
    *,
    key: bytes | None = None,
) -> Saved:
    """Write the model to a packed file; its size in bytes, with its ``digest``.

    What is sparse, quantised or both takes the entropy of its values. With an ``example`` input the
    computation itself is stored, so that :func:`load` needs none of the model's classes. With a ``key`` the
    file is sealed: ``load(path, key=key)`` then refuses what others wrote.
    """
    data = packed(model, example, key)
    files.write(path, data)
    saved = Saved(len(data))
    saved.digest = hashlib.sha256(data).hexdigest()
    return saved


def load(
    path: str | os.PathLike[str],
    *,
    classes: Iterable[Kind] = (),
    limit: int | None = None,
    digest: str | None = None,
    key: bytes | None = None,
) -> nn.Module:
    """The model in a packed file, in evaluation mode.

    ``classes``: module classes of your own that it may use, beside torch.nn's, torchlift's and transformers'.
    ``limit``: the most bytes that reading may take, all of it counted, and that one call of a stored graph
    may hold; by default 256 MiB and 1024 times the file's size. ``digest``: the SHA-256 that the file must
    have, as :func:`save` gives it. ``key``: the key it must be sealed with.
    """
    try:
        size = os.stat(path).st_size
        budget = Budget(default_limit(size) if limit is None else limit)
        budget.take(size, f"{path}: the file")
        data = Path(path).read_bytes()
    except OSError as error:
        raise PackedError(f"{path} cannot be read: {error.strerror}.") from error
    try:
        if digest is not None:
            sealing.check_digest(data, digest)
        return unpacked(data, classes, limit, key=key)
    except PackedError as error:
        raise PackedError(f"{path}: {error}") from error


def packed(model: nn.Module, example: Example | None = None, key: bytes | None = None) -> bytes:
    """The file's content."""
    return assembled(*described(model if example is None else trace(model, example)), key)


def described(model: nn.Module) -> tuple[bytes, list[Tensor]]:
    """The header of a model's file, and its tensors."""
    writer = Writer()
    text = json.dumps({"model": writer.module(model)}, separators=(",", ":"), allow_nan=False)
    return zlib.compress(text.encode(), 9), writer.tensors


def assembled(header: bytes, held: list[Tensor], key: bytes | None) -> bytes:
    """All parts of a file, sealed."""
    parts = tensors.write(held)
    kind = sealing.CHECKSUM if key is None else sealing.KEYED
    lengths = (len(header), len(parts.plan), parts.plan_size, len(parts.raw))
    front = FRONT.pack(NAME + VERSION, CODER, kind, parts.lanes, *lengths)
    data = b"".join([front, header, parts.plan, parts.raw, parts.code])
    return data + sealing.seal(data, key)


def unpacked(
    data: bytes, classes: Iterable[Kind] = (), limit: int | None = None, *, key: bytes | None = None
) -> nn.Module:
    """The model in a file's content; ``limit`` as in :func:`load`."""
    budget = Budget(default_limit(len(data)) if limit is None else limit)
    budget.take(len(data), "the file")
    if len(data) < FRONT.size + sealing.SIZE or data[:5] != NAME:
        raise PackedError("this is not a torchlift model file.")
    readers = {FIRST: first_version, VERSION: second_version}
    if data[5:8] not in readers:
        known = ", ".join(version.decode() for version in readers)
        raise PackedError(f"version {data[5:8]!r} of the format is not known; this torchlift reads {known}.")
    try:
        return readers[data[5:8]](data, classes, limit, key, budget)
    except PackedError:
        raise
    except (
        Exception
    ) as error:  # what a hostile header leads to has no list; it must not pass for a bug of ours
        raise PackedError(f"the file makes no sense ({type(error).__name__}: {str(error)[:200]}).") from error


def second_version(
    data: bytes, classes: Any, limit: int | None, key: bytes | None, budget: Budget
) -> nn.Module:
    """A file of this version."""
    _, coder, seal, lanes, *lengths = FRONT.unpack_from(data)
    body, view = len(data) - sealing.SIZE, memoryview(data)
    sealing.check_seal(view[:body], data[body:], seal, key)
    if coder != CODER:
        raise PackedError(f"version {coder} of the coder is not known; this torchlift reads {CODER}.")
    header, plan, inflated, raw = lengths
    if FRONT.size + header + plan + raw > body:
        raise PackedError("a part is longer than the file.")
    at = FRONT.size
    tree = opened(data[at : at + header], budget)
    at += header
    budget.take(inflated, "the plan")
    numbers = inflate(view[at : at + plan], inflated)
    at += plan
    found = tensors.read(numbers, view[at : at + raw], lanes, view[at + raw : body], budget)
    return built(tree, found, classes, limit, budget)


def first_version(
    data: bytes, classes: Any, limit: int | None, key: bytes | None, budget: Budget
) -> nn.Module:
    """A file of the first version, which had no keys."""
    body, view = len(data) - sealing.SIZE, memoryview(data)
    sealing.check_seal(view[:body], data[body:], sealing.CHECKSUM, key)
    end = 16 + int.from_bytes(data[8:16], "little")
    if end > body:
        raise PackedError("the header is longer than the file.")
    tree = opened(data[16:end], budget)
    return built(tree, legacy.read(tree["tensors"], view[end:body], budget), classes, limit, budget)


def opened(text: bytes, budget: Budget) -> Any:
    """The header, if it is of a size that headers have."""
    most = min(HEADER, (budget.limit - budget.held) // (OBJECTS + 1))
    engine = zlib.decompressobj()
    try:
        found = engine.decompress(text, max(most, 1))
    except zlib.error as error:
        raise PackedError(f"the header is damaged ({error}).") from error
    if not engine.eof:
        raise PackedError(f"the header is larger than {most} bytes; raise limit= if the file is trusted.")
    budget.take(OBJECTS * len(found), "the header")
    return json.loads(found)


def built(tree: Any, found: Any, classes: Any, limit: int | None, budget: Budget) -> nn.Module:
    """The model from its tree and tensors; layers whose kernels trust their shapes are vetted, programs
    verified."""
    reader = Reader(found, [Program, *classes], budget)
    model = reader.module(tree["model"])
    for module in reader.modules:
        vet(module)
        if isinstance(module, Program):
            verify(module, limit)
    refresh_flat_weights(model)
    return model
