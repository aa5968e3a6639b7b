"""The last 32 bytes of a file. A checksum finds damage; only a key or a known digest says who wrote it."""

import hashlib
import hmac
from typing import BinaryIO

from torchlift.packed.budget import PackedError

SIZE = 32
CHECKSUM, KEYED = 0, 1
PIECE = 1 << 20


def seal(content: bytes, key: bytes | None) -> bytes:
    """SHA-256 of the content, or with a key HMAC-SHA-256 (RFC 2104)."""
    if key is None:
        return hashlib.sha256(content).digest()
    return hmac.new(key, content, hashlib.sha256).digest()


def check_seal(file: BinaryIO, size: int, kind: int, key: bytes | None) -> None:
    """Raise for a file that was damaged or that nobody with the key has sealed; it is read piece by piece."""
    if kind not in (CHECKSUM, KEYED):
        raise PackedError(f"a seal of kind {kind} is not known.")
    if key is None and kind == KEYED:
        raise PackedError("the file is sealed with a key: pass load(path, key=...).")
    if key is not None and kind == CHECKSUM:
        raise PackedError(
            "the file is not sealed with a key: whoever wrote it did not use save(..., key=...)."
        )
    expected = hashlib.sha256() if key is None else hmac.new(key, b"", hashlib.sha256)
    file.seek(0)
    left = size - SIZE
    while left:
        piece = file.read(min(PIECE, left))
        if not piece:
            raise PackedError("the file ends before its seal.")
        expected.update(piece)
        left -= len(piece)
    if not hmac.compare_digest(expected.digest(), file.read(SIZE)):
        raise PackedError(
            "the checksum is wrong: the file is truncated or was changed."
            if key is None
            else "the seal is wrong: the file was changed, or sealed with another key."
        )


def check_digest(content: bytes, digest: str) -> None:
    """Raise for content with another SHA-256 than the one expected."""
    actual = hashlib.sha256(content).hexdigest()
    if not hmac.compare_digest(actual, digest.strip().lower()):
        raise PackedError(f"the digest is {actual}, not digest=: this is another file.")
