"""Records in a file, one JSON line each with its checksum: appended whole or not at all.

A crash leaves at most one *torn* line at the end, without its line break: it is dropped, and what it held is
lost. Every whole line carries the checksum of its text and of the journal's ``owner``; a line whose checksum
does not fit was edited, damaged, or written for another run, and is an error.
"""

import contextlib
import fcntl
import json
import os
import re
import zlib
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

from torchlift.errors import CheckpointError

Record = dict[str, Any]
CHECKSUM = re.compile(rb'(?:, )?"crc": "([0-9a-f]{8})"}\n')
"""How a line ends."""
BLOCK = 4096


class Journal:
    """A file that several processes read and append to; whoever appends locks the file."""

    def __init__(self, path: Path, owner: str = "") -> None:
        self.path, self.owner = path, owner
        self.offsets = [0]
        """Where each line begins that has been read so far, and where the next will."""

    def read(self, first: int = 0) -> Iterator[Record]:
        """The records from a number on; what is not a whole line yet is left for later."""
        return (self.decode(line, number) for number, line in self.numbered(first))

    def numbered(self, first: int) -> Iterator[tuple[int, bytes]]:
        """The whole lines from a number on."""
        start = min(first, len(self.offsets) - 1)
        try:
            with self.path.open("rb") as file:
                file.seek(self.offsets[start])
                for number, line in enumerate(file, start):
                    if not line.endswith(b"\n"):
                        return
                    if number + 1 == len(self.offsets):
                        self.offsets.append(self.offsets[number] + len(line))
                    if number >= first:
                        yield number, line
        except FileNotFoundError:
            return
        except OSError as error:
            raise CheckpointError(f"cannot read {self.path} ({error.strerror}).") from error

    def append(self, *records: Mapping[str, Any]) -> None:
        """All of the records, on the disk, or none."""
        self.write(b"".join(map(self.encode, records)))

    def write(self, lines: bytes, flush: bool = True) -> None:
        """Encoded lines, all or none; ``flush`` them to the disk too."""
        if not lines and not flush:
            return
        try:
            with self.locked() as handle:
                end = drop_torn(handle)
                try:
                    write_at(handle, lines, end)
                    if flush:
                        os.fsync(handle)
                except OSError:
                    os.ftruncate(handle, end)
                    raise
        except OSError as error:
            raise CheckpointError(
                f"cannot write {self.path} ({error.strerror}): what it holds is kept; free space there, then "
                "resume=True goes on."
            ) from error

    def cut(self, size: int) -> None:
        """Drop what stands behind so many bytes."""
        self.offsets = [0]
        try:
            if self.path.exists() and self.path.stat().st_size > size:
                os.truncate(self.path, size)
        except OSError as error:
            raise CheckpointError(f"cannot write {self.path} ({error.strerror}).") from error

    def encode(self, record: Mapping[str, Any]) -> bytes:
        """A record as a line."""
        text = json.dumps(record).encode()
        comma = b", " if record else b""
        return text[:-1] + comma + b'"crc": "%08x"}\n' % self.checksum(text[:-1])

    def decode(self, line: bytes, number: int) -> Record:
        """A line as a record, if it is one of this journal."""
        end = CHECKSUM.search(line)
        if end is None or end.end() != len(line) or int(end[1], 16) != self.checksum(line[: end.start()]):
            raise CheckpointError(
                f"{self.path} is damaged, or of another run, in line {number + 1}: "
                "put it back, or start again with overwrite=True."
            )
        return json.loads(line[: end.start()] + b"}")

    def checksum(self, text: bytes) -> int:
        """CRC-32 of the text, begun with the owner."""
        return zlib.crc32(text, zlib.crc32(self.owner.encode()))

    @contextlib.contextmanager
    def locked(self) -> Generator[int]:
        """The file, open and ours."""
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield handle
        finally:
            os.close(handle)


def write_at(handle: int, content: bytes, offset: int) -> None:
    """All of the bytes at a place."""
    done = 0
    while done < len(content):
        done += os.pwrite(handle, content[done:], offset + done)


def drop_torn(handle: int) -> int:
    """Cut a last line that has no line break; the file's end."""
    end = os.fstat(handle).st_size
    whole = end
    while whole and os.pread(handle, 1, whole - 1) != b"\n":
        back = max(0, whole - BLOCK)
        whole = back + os.pread(handle, whole - back, back).rfind(b"\n") + 1
    if whole < end:
        os.ftruncate(handle, whole)
    return whole
