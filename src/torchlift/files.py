"""Writing files so that they are complete or not there, even through a crash. Knows nothing else."""

import contextlib
import os
import re
import secrets
from pathlib import Path

TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}\.tmp")
"""What a file is called while it is written: a crash may leave one behind."""


def write(path: str | os.PathLike[str], content: bytes) -> Path:
    """A temporary file, flushed to the disk, renamed, the rename flushed too.

    On failure the old file stays, nothing half-written is left, and the ``OSError`` names the reason.
    The file's mode is what the user's umask makes it.
    """
    target = Path(path)
    temporary = target.parent / f".{target.name}.{secrets.token_hex(4)}.tmp"
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        sync(target.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):  # the first error counts; what is left is swept up on resume
            os.unlink(temporary)
        if not isinstance(error, OSError):
            raise
        reason = error.strerror or type(error).__name__
        message = f"cannot write ({reason}): free space there or choose another folder"
        raise OSError(error.errno, message, str(target)) from error
    return target


def sync(folder: Path) -> None:
    """Flush a folder's own entries, so that a rename survives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
