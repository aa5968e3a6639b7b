"""What a search has spent and found, one line per trial: written whole, kept through crashes."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from torchlift.errors import CheckpointError
from torchlift.experiments.constraints import Delivered


class Ledger:
    """Lines of JSON in a file, or in memory alone."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.lines: list[dict[str, Any]] = []
        if path is not None and path.exists():
            whole = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
            self.lines = [json.loads(line) for line in whole]
            if sum(map(len, whole)) < len(path.read_text()):  # a crash cut the last line short
                path.write_text("".join(whole))

    def append(self, kind: str, value: dict[str, Any]) -> None:
        """One more line, on the disk before this returns."""
        line = {"kind": kind, **value}
        self.lines.append(line)
        if self.path is None:
            return
        try:
            with self.path.open("a") as file:
                file.write(json.dumps(line) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            why = f"cannot write {self.path} ({error.strerror})"
            raise CheckpointError(f"{why}: free space there, then resume=True goes on.") from error

    def found(self, kind: str) -> list[dict[str, Any]]:
        """The lines of a kind, in order."""
        return [{k: v for k, v in line.items() if k != "kind"} for line in self.lines if line["kind"] == kind]

    @property
    def rows(self) -> list[Delivered]:
        """The trials."""
        fields: list[dict[str, Any]] = [
            {**line, "stages": tuple(line["stages"])} for line in self.found("trial")
        ]
        return [Delivered(**line) for line in fields]

    def add(self, row: Delivered) -> None:
        """A trial that is done."""
        self.append("trial", dataclasses.asdict(row))

    def spent(self) -> float:
        """Seconds of all trials."""
        return sum(row.seconds for row in self.rows)
