"""Writing files so that they are complete or not there, even through a crash. Knows nothing else."""

import contextlib
import errno
import os
import re
import secrets
from pathlib import Path

TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}\.tmp")
"""What a file is called while it is written: a crash may leave one behind."""
NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)
EXCLUSIVE = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def write_file(path: str | os.PathLike[str], content: bytes) -> Path:
    """A temporary file, flushed to the disk, renamed, the rename flushed too.

    On failure the old file stays, nothing half-written is left, and the ``OSError`` names the reason.
    The file's mode is what the user's umask makes it.
    """
    target = Path(path)
    temporary = temporary_for(target)
    try:
        with os.fdopen(os.open(temporary, EXCLUSIVE, 0o666), "wb") as file:
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


def create(path: Path, content: bytes) -> bool:
    """A new file that has its content as soon as it has its name; False where there is one of that name.

    It is not flushed. A file system without hard links shows it empty for a moment.
    """
    temporary = temporary_for(path)
    try:
        with os.fdopen(os.open(temporary, EXCLUSIVE, 0o666), "wb") as file:
            file.write(content)
        try:
            os.link(temporary, path)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            with os.fdopen(os.open(path, EXCLUSIVE, 0o666), "wb") as file:
                file.write(content)
    except (FileExistsError, FileNotFoundError):  # it is there; or somebody swept up what was being written
        return False
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
    return True


def temporary_for(path: Path) -> Path:
    """A new name that matches :data:`TEMPORARY`."""
    return path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"


def temporary_of(path: Path) -> str | None:
    """The name of the file that a temporary one was to become."""
    match = TEMPORARY.fullmatch(path.name)
    return match["name"] if match else None


def sync(folder: Path) -> None:
    """Flush a folder's own entries, so that a rename survives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
