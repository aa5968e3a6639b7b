"""One run at a time in a folder: a lock that the kernel lets go when its holder dies or the machine restarts.

``.lock`` names the holder (process, boot, start time, host) for people, and for file systems without locks.
It has this text as soon as it has its name: whoever dies leaves a lock that the next one knows as ours.
"""

import contextlib
import contextvars
import dataclasses
import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Generator
from pathlib import Path
from typing import ClassVar

from torchlift import files
from torchlift.errors import CheckpointError, InUseError
from torchlift.train.run.holder import me, parse_holder, read_holder

NAME = ".lock"
PATIENCE = 5.0
"""Seconds to wait for a holder that is about to share."""
LARGEST, LENGTH = 4096, 1024
"""Bytes of a lock file that are read; and written, with spaces behind the text: one text covers another."""
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


class Lock:
    """A claimed folder. Forked children let go of it at once: their parent alone decides."""

    open_locks: ClassVar[set["Lock"]] = set()

    def __init__(self, folder: Path, shared: bool = False) -> None:
        self.folder, self.path, self.handle = folder, folder / NAME, -1
        self.new_folder, self.created, self.removable = not folder.exists(), False, False
        try:
            folder.mkdir(parents=True, exist_ok=True)
            patience = time.monotonic() + (PATIENCE if shared else 0.0)
            while not self.taken(shared, time.monotonic() < patience):
                time.sleep(0.01)
            os.pwrite(self.handle, signature(), 0)
            os.ftruncate(self.handle, LENGTH)
            self.sweep()
        except OSError as error:
            self.release()
            raise CheckpointError(
                f"cannot write {self.path} ({error.strerror}): free space there or choose another folder."
            ) from error
        Lock.open_locks.add(self)

    def taken(self, shared: bool, patient: bool) -> bool:
        """Try once; False where the holder can be waited for, or has removed the file meanwhile."""
        if not self.open():
            return False
        if not self.ours():
            self.close()
            raise InUseError(
                f"{self.path} is not a lock of torchlift: move it away or choose another folder."
            )
        try:
            fcntl.flock(self.handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if not patient:
                self.raise_in_use(error)
            self.close()
            return False
        except OSError as error:
            holder = read_holder(self.path)
            others = holder is not None and holder.lives() and not self.created
            if error.errno not in NO_LOCKS or others:
                self.raise_in_use(error)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self.handle), os.lstat(self.path)):
                return True
        self.close()
        return False

    def open(self) -> bool:
        """Open the file, made here or found, never through a link; False where it went meanwhile."""
        if not os.path.lexists(self.path):
            self.created = files.create(self.path, signature())
        try:
            self.handle = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return False
        return True

    def ours(self) -> bool:
        """Whether the file is what we write, or empty: another program's is left alone.

        An empty one that was there before may be another program's too: it stays, empty.
        """
        if not stat.S_ISREG(os.fstat(self.handle).st_mode):
            return False
        text = os.pread(self.handle, LARGEST, 0)
        self.removable |= parse_holder(text) is not None
        return not text or self.removable

    def sweep(self) -> None:
        """Remove locks of ours that a crash left half-written."""
        for path in self.folder.glob(f".{NAME}.*.tmp"):
            if files.temporary_of(path) == NAME:
                path.unlink(missing_ok=True)

    def raise_in_use(self, error: OSError) -> None:
        """An error that says who is there."""
        holder = read_holder(self.path)
        self.close()
        who = "another process" if holder is None else f"process {holder.pid} on {holder.host}"
        raise InUseError(
            f"{self.folder} is in use by {who}: wait for it to end, or choose another folder."
        ) from error

    def share(self) -> None:
        """Let others in who also share."""
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(self.handle, fcntl.LOCK_SH)

    def release(self) -> None:
        """Let go; the last one out removes the file, and the folder if it was made for nothing."""
        if self.handle < 0:
            return
        with contextlib.suppress(OSError):
            fcntl.flock(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # others who share keep the file
            if not self.removable:
                os.ftruncate(self.handle, 0)
            elif os.path.samestat(os.fstat(self.handle), os.lstat(self.path)):
                os.unlink(self.path)
        self.close()
        if self.new_folder and self.folder.is_dir() and not any(self.folder.iterdir()):
            with contextlib.suppress(OSError):
                self.folder.rmdir()

    def close(self) -> None:
        """Close the file, and with it the lock."""
        Lock.open_locks.discard(self)
        os.close(self.handle)
        self.handle = -1


def signature() -> bytes:
    """What this process writes into a lock."""
    return json.dumps(dataclasses.asdict(me())).encode().ljust(LENGTH)


def forget_locks() -> None:
    """In a forked child: no lock is ours."""
    for lock in list(Lock.open_locks):
        lock.close()


os.register_at_fork(after_in_child=forget_locks)

OPEN: contextvars.ContextVar[contextlib.ExitStack | None] = contextvars.ContextVar("claims", default=None)


@contextlib.contextmanager
def claims() -> Generator[None]:
    """Folders claimed in this stretch of code are free again after it."""
    with contextlib.ExitStack() as stack:
        token = OPEN.set(stack)
        try:
            yield
        finally:
            OPEN.reset(token)


def claim(folder: Path, shared: bool = False) -> Lock:
    """The folder is ours to the end of :func:`claims`; one line where it is another's."""
    stack = OPEN.get()
    assert stack is not None, "claim folders inside claims()"
    lock = Lock(folder, shared)
    stack.callback(lock.release)
    return lock
