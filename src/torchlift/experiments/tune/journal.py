"""The study's journal: one JSON line per operation, appended whole or not at all.

Optuna's own file backend leaves half a line when the disk is full, and can never be read again. This one
cuts back what it could not write, and drops a last line that a crash cut short: the operation it held is
lost, the study is not.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from torchlift.errors import CheckpointError
from torchlift.experiments.tune.optuna_extra import optuna

Operation = dict[str, Any]


class Lines:
    """Lines of a file that several processes read and append to; whoever appends locks the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offsets = [0]
        """Where each line begins that has been read so far, and where the next will."""
        path.touch()
        with self.locked() as handle:
            mend(handle)

    def read_logs(self, log_number_from: int) -> Iterator[Operation]:
        """The operations from a number on; what is not a whole line yet is left for later."""
        known = min(log_number_from, len(self.offsets) - 1)
        with self.path.open("rb") as file:
            file.seek(self.offsets[known])
            for number, line in enumerate(file, known):
                if not line.endswith(b"\n"):
                    return
                if number + 1 == len(self.offsets):
                    self.offsets.append(self.offsets[number] + len(line))
                if number >= log_number_from:
                    yield self.parse(line, number)

    def append_logs(self, logs: list[Operation]) -> None:
        """All of the operations, on the disk, or none."""
        text = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs).encode()
        with self.locked() as handle:
            end = mend(handle)
            try:
                written = 0
                while written < len(text):
                    written += os.pwrite(handle, text[written:], end + written)
                os.fsync(handle)
            except OSError as error:
                os.ftruncate(handle, end)
                raise CheckpointError(
                    f"cannot write {self.path} ({error.strerror}): the study is kept; free space there, "
                    "then resume=True goes on."
                ) from error

    def parse(self, line: bytes, number: int) -> Operation:
        """One line as an operation."""
        try:
            return json.loads(line)
        except ValueError as error:
            raise CheckpointError(
                f"{self.path} is damaged in line {number + 1}: remove that line, or start anew."
            ) from error

    @contextlib.contextmanager
    def locked(self) -> Generator[int]:
        """The file, open and ours."""
        handle = os.open(self.path, os.O_RDWR)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield handle
        finally:
            os.close(handle)


def try_one(study: Any, objective: Any) -> None:
    """One trial; a journal that cannot be written is our error, which Optuna hides behind one of its own."""
    try:
        study.optimize(objective, n_trials=1)
    except AssertionError as error:
        if isinstance(error.__context__, CheckpointError):
            raise error.__context__ from None
        raise


def mend(handle: int) -> int:
    """Drop a last line that was cut short; the file's end."""
    end = os.fstat(handle).st_size
    whole = end
    while whole and os.pread(handle, 1, whole - 1) != b"\n":
        back = max(0, whole - 4096)
        whole = back + os.pread(handle, whole - back, back).rfind(b"\n") + 1
    if whole < end:
        os.ftruncate(handle, whole)
    return whole


def open_journal(path: Path) -> Any:
    """The file as a backend of Optuna's journal storage."""
    base = optuna().storages.journal.BaseJournalBackend
    backend = type("Backend", (Lines, base), {})
    try:
        return backend(path)
    except OSError as error:
        raise CheckpointError(f"cannot write {path} ({error.strerror}): choose another folder.") from error
