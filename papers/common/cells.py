"""Finished measurements of a run, kept in a file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Cells:
    """Finished cells as JSON lines in a file, so that an interrupted run goes on where it stopped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        self.known: dict[str, Any] = dict(json.loads(line) for line in lines)

    def get(self, key: str, compute: Callable[[], Any]) -> Any:
        """The value under ``key``, computed and written down if it is new."""
        if key not in self.known:
            self.known[key] = compute()
            with self.path.open("a") as file:
                file.write(json.dumps([key, self.known[key]]) + "\n")
        return self.known[key]
