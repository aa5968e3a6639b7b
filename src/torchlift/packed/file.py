"""``save`` and ``load``: one small file that holds a model, and nothing that runs.

    offset  bytes  content
    0       8      b"TLIFT" and the version of the format, b"002"
    8       1      version of the entropy coder, 3
    9       1      seal: 0 SHA-256, 1 HMAC-SHA-256 with the writer's key
    10      2      lanes of the coder
    12      4      length of the header
    16      4      length of the plan
    20      4      length of the plan when inflated
    24      8      length of the raw bytes
    32      …      header: JSON deflated from a dictionary, the model's tree or graph, tensors by number
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
import zlib
from collections.abc import Iterable
from pathlib import Path

from torch import Tensor, nn

from torchlift import files
from torchlift.channels.example_inputs import Example
from torchlift.channels.layout import is_last
from torchlift.packed import sealing, tensors
from torchlift.packed.budget import Budget, PackedError, default_limit
from torchlift.packed.classes import Kind
from torchlift.packed.dictionary import DICTIONARY
from torchlift.packed.tracing import trace
from torchlift.packed.trees import Writer
from torchlift.packed.unpacking import CODER, FRONT, NAME, VERSION, unpacked


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

    What is sparse, quantized or both takes the entropy of its values. With an ``example`` input the
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
    tree: dict[str, object] = {"model": writer.module(model)}
    if last := [number for number, tensor in enumerate(writer.tensors) if is_last(tensor)]:
        tree["channels_last"] = last
    text = json.dumps(tree, separators=(",", ":"), allow_nan=False)
    engine = zlib.compressobj(9, zdict=DICTIONARY)
    return engine.compress(text.encode()) + engine.flush(), writer.tensors


def assembled(header: bytes, held: list[Tensor], key: bytes | None) -> bytes:
    """All parts of a file, sealed."""
    parts = tensors.write(held)
    kind = sealing.CHECKSUM if key is None else sealing.KEYED
    lengths = (len(header), len(parts.plan), parts.plan_size, len(parts.raw))
    front = FRONT.pack(NAME + VERSION, CODER, kind, parts.lanes, *lengths)
    data = b"".join([front, header, parts.plan, parts.raw, parts.code])
    return data + sealing.seal(data, key)
