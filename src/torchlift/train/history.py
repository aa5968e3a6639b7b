"""What happened, one row per epoch: a list, and ``history.jsonl`` where the run has a folder.

The file only grows; a checkpoint holds a position in it (rows, bytes, a digest of what stands before), so
that what a checkpoint costs does not depend on how long the run has been. Rows that come fast go to the file
together, a second's worth at a time; before a checkpoint names them they are on the disk.
"""

import contextlib
import hashlib
import json
import math
import os
import time
import weakref
from pathlib import Path
from typing import Any

from torchlift.errors import CheckpointError

Row = dict[str, Any]
WAIT = 1.0
"""Seconds for which rows may wait for the file: what they cost there is a write, not its length."""
Mark = dict[str, Any]
"""``{"rows": how many, "bytes": how far, "digest": of what}``: a position in the history."""


class History:
    """Rows of a run, appended as they come; on resume the file is cut back to where the run goes on.

    With several processes only one ``writes``; the others keep the same rows.
    """

    def __init__(self, path: Path | None = None, writes: bool = True) -> None:
        self.path, self.writes = path, writes and path is not None
        self.rows: list[Row] = []
        self.told, self.bytes, self.digest = 0, 0, hashlib.blake2b(digest_size=16)
        self.stored: list[bytes] | None = None
        self.handle, self.waiting, self.written = -1, bytearray(), -WAIT

    def append(self, row: Row) -> None:
        """Add a row; the file has it at once, or within :data:`WAIT` where rows come fast."""
        self.rows.append({name: tidy(value) for name, value in row.items()})
        if self.path is not None and time.monotonic() - self.written >= WAIT:
            self.catch_up()

    def catch_up(self, flush: bool = False) -> None:
        """Count the rows that wait, and write them as lines; ``flush`` takes them to the disk."""
        for row in self.rows[self.told :]:
            line = json.dumps(row).encode() + b"\n"
            self.advance(line)
            self.waiting += line
        if self.writes:
            self.to_file(flush)
        self.written = time.monotonic()

    def advance(self, line: bytes) -> None:
        """Count a line."""
        self.told += 1
        self.bytes += len(line)
        self.digest.update(line)

    def mark(self) -> Mark:
        """Where the history stands: on the disk when this returns."""
        if self.path is not None and self.rows:
            self.catch_up(flush=True)
        return {"rows": len(self.rows), "bytes": self.bytes, "digest": self.digest.hexdigest()}

    def rewind(self, mark: Mark, cut: bool = True) -> None:
        """Make the rows those before a mark; ``cut`` the file there too."""
        self.rows, self.told, self.bytes, self.digest = [], 0, 0, hashlib.blake2b(digest_size=16)
        for line in self.lines()[: mark["rows"]]:
            self.rows.append(parse(line))
            self.advance(line)
        if (self.bytes, self.digest.hexdigest()) != (mark["bytes"], mark["digest"]):
            raise CheckpointError(
                f"{self.path} is not as its checkpoint knows it (cut or edited): "
                "put it back, or start anew with overwrite=True."
            )
        if cut:
            self.cut()

    def slice(self, first: int, last: int) -> list[Row]:
        """Rows of the file, of an earlier life of the run."""
        return [parse(line) for line in self.lines()[first:last]]

    def cut(self) -> None:
        """Drop from the file what stands behind the last row."""
        self.stored = None
        self.waiting.clear()
        if self.path is None or not self.writes or not self.path.exists():
            return
        try:
            if self.path.stat().st_size > self.bytes:
                os.truncate(self.path, self.bytes)
        except OSError as error:
            raise CheckpointError(f"cannot write {self.path} ({error.strerror}).") from error

    def lines(self) -> list[bytes]:
        """The file's whole lines, read once in a run that replays."""
        if self.stored is None:
            text = self.path.read_bytes() if self.path is not None and self.path.exists() else b""
            self.stored = [line for line in text.splitlines(keepends=True) if line.endswith(b"\n")]
        return self.stored

    def to_file(self, flush: bool) -> None:
        """Append what waits, ``flush`` it to the disk too; the file stays open, for rows may come fast."""
        assert self.path is not None
        try:
            if self.handle < 0:
                self.handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
                weakref.finalize(self, os.close, self.handle)
            while self.waiting:
                del self.waiting[: os.write(self.handle, self.waiting)]
            if flush:
                os.fsync(self.handle)
        except OSError as error:
            raise CheckpointError(
                f"cannot write {self.path} ({error.strerror}): free space there."
            ) from error

    def settle(self) -> None:
        """Let the file have what waits, if it can; where it cannot, :meth:`mark` says so."""
        if self.path is not None:
            with contextlib.suppress(CheckpointError):
                self.catch_up()


def read(path: Path) -> list[Row]:
    """The rows of a ``history.jsonl``; a last line cut short by a crash is left out."""
    rows: list[Row] = []
    for line in path.read_bytes().splitlines():
        try:
            rows.append(parse(line))
        except CheckpointError:
            break
    return rows


def parse(line: bytes) -> Row:
    """One line as a row."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"a line of the history is damaged: {line[:60]!r}.") from error
    if not isinstance(row, dict):
        raise CheckpointError(f"a line of the history is no row: {line[:60]!r}.")
    return row


def tidy(value: Any) -> Any:
    """JSON has no NaN: an undefined number becomes null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
