"""What happened, one row per epoch: a list, and ``history.jsonl`` where the run has a folder.

The file only grows; a checkpoint holds a position in it (rows, bytes, a digest of what stands before), so
that what a checkpoint costs does not depend on how long the run has been. Rows that come fast go to the file
together, a second's worth at a time; before a checkpoint names them they are on the disk.
"""

import contextlib
import hashlib
import math
import time
from pathlib import Path
from typing import Any

from torchlift.errors import CheckpointError
from torchlift.journal import Journal

HistoryRow = dict[str, Any]
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
        self.journal = Journal(Path() if path is None else path)
        self.rows: list[HistoryRow] = []
        self.count, self.bytes, self.digest = 0, 0, hashlib.blake2b(digest_size=16)
        self.stored: list[bytes] | None = None
        self.waiting, self.written = bytearray(), -WAIT

    def append(self, row: HistoryRow) -> None:
        """Add a row; the file has it at once, or within :data:`WAIT` where rows come fast."""
        self.rows.append({name: tidy(value) for name, value in row.items()})
        if self.path is not None and time.monotonic() - self.written >= WAIT:
            self.catch_up()

    def catch_up(self, flush: bool = False) -> None:
        """Count the rows that wait, and write them as lines; ``flush`` takes them to the disk."""
        for row in self.rows[self.count :]:
            line = self.journal.encode(row)
            self.advance(line)
            self.waiting += line
        if self.writes:
            self.journal.write(bytes(self.waiting), flush)
            self.waiting.clear()
        self.written = time.monotonic()

    def advance(self, line: bytes) -> None:
        """Count a line."""
        self.count += 1
        self.bytes += len(line)
        self.digest.update(line)

    def mark(self) -> Mark:
        """Where the history stands: on the disk when this returns."""
        if self.path is not None and self.rows:
            self.catch_up(flush=True)
        return {"rows": len(self.rows), "bytes": self.bytes, "digest": self.digest.hexdigest()}

    def rewind(self, mark: Mark, cut: bool = True) -> None:
        """Make the rows those before a mark; ``cut`` the file there too."""
        self.rows, self.count, self.bytes, self.digest = [], 0, 0, hashlib.blake2b(digest_size=16)
        for number, line in enumerate(self.lines()[: mark["rows"]]):
            self.rows.append(self.journal.decode(line, number))
            self.advance(line)
        if (self.bytes, self.digest.hexdigest()) != (mark["bytes"], mark["digest"]):
            raise CheckpointError(
                f"{self.path} does not match its checkpoint (cut or edited): "
                "put it back, or start again with overwrite=True."
            )
        if cut:
            self.cut()

    def slice(self, first: int, last: int) -> list[HistoryRow]:
        """Rows of the file, of an earlier life of the run."""
        lines = self.lines()[first:last]
        return [self.journal.decode(line, first + number) for number, line in enumerate(lines)]

    def cut(self) -> None:
        """Drop from the file what stands behind the last row."""
        self.stored = None
        self.waiting.clear()
        if self.writes:
            self.journal.cut(self.bytes)

    def lines(self) -> list[bytes]:
        """The file's whole lines, read once in a run that replays."""
        if self.stored is None:
            self.stored = [] if self.path is None else [line for _, line in self.journal.numbered(0)]
        return self.stored

    def flush(self) -> None:
        """Let the file have what waits, if it can; where it cannot, :meth:`mark` says so."""
        if self.path is not None:
            with contextlib.suppress(CheckpointError):
                self.catch_up()


def read_history(path: Path) -> list[HistoryRow]:
    """The rows of a ``history.jsonl``; a last line cut short by a crash is left out."""
    return list(Journal(path).read())


def tidy(value: Any) -> Any:
    """JSON has no NaN: an undefined number becomes null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
