"""What happened, one row per epoch: a list, and ``history.jsonl`` where the run has a folder."""

import json
import math
from pathlib import Path
from typing import Any

from torchlift.errors import CheckpointError
from torchlift.train.checkpoint import write

Row = dict[str, Any]


class History:
    """Rows of a run, appended as they come; on resume the file is cut back to where the run goes on."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.rows: list[Row] = []

    def append(self, row: Row) -> None:
        """Add a row, and a line to the file."""
        row = {name: tidy(value) for name, value in row.items()}
        self.rows.append(row)
        if self.path is not None:
            try:
                with self.path.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            except OSError as error:
                raise CheckpointError(
                    f"cannot write {self.path} ({error.strerror}): free space there."
                ) from error

    def replace(self, rows: list[Row]) -> None:
        """Make these the rows, in the file as well."""
        self.rows = list(rows)
        if self.path is not None:
            write(self.path, "".join(json.dumps(row) + "\n" for row in rows).encode())


def read(path: Path) -> list[Row]:
    """The rows of a ``history.jsonl``; a last line cut short by a crash is left out."""
    rows: list[Row] = []
    for line in path.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def tidy(value: Any) -> Any:
    """JSON has no NaN: an undefined number becomes null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
