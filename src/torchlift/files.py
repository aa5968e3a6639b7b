"""Writing files so that they are complete or not there, even through a crash. Knows nothing else."""

import contextlib
import os
import tempfile
from pathlib import Path


def write(path: str | os.PathLike[str], content: bytes) -> Path:
    """A temporary file, flushed to the disk, renamed, the rename flushed too.

    On failure the old file stays, nothing half-written is left, and the ``OSError`` names the reason.
    """
    target = Path(path)
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        sync(target.parent)
    except OSError as error:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
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
