"""Finished measurements of a run, kept in a journal."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchlift.journal import Journal


class Cells:
    """Finished cells by their keys, so that an interrupted run goes on where it stopped."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.journal = Journal(path)
        self.known: dict[str, Any] = {cell["key"]: cell["value"] for cell in self.journal.read()}

    def get(self, key: str, compute: Callable[[], Any]) -> Any:
        """The value under ``key``, computed and written down if it is new."""
        if key not in self.known:
            self.known[key] = compute()
            self.journal.append({"key": key, "value": self.known[key]})
        return self.known[key]
