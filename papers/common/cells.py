"""Finished measurements of a run, kept in a journal."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torchlift.experiments.executors import current, run_all
from torchlift.journal import Journal

Jobs = Mapping[str, Callable[[], Any]]


class Cells:
    """Finished cells by their keys, so that an interrupted run goes on where it stopped."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.journal = Journal(path)
        self.values: dict[str, Any] = {cell["key"]: cell["value"] for cell in self.journal.read()}

    def get(self, key: str, compute: Callable[[], Any]) -> Any:
        """The value under ``key``, computed and written down if it is new."""
        if key not in self.values:
            self.values[key] = compute()
            self.journal.append({"key": key, "value": self.values[key]})
        return self.values[key]

    def all(self, jobs: Jobs) -> list[Any]:
        """The values of all keys, in their order; what is new is shared by --jobs or --executor.

        A worker writes what it has finished into the journal.
        """
        new = {key: compute for key, compute in jobs.items() if key not in self.values}
        if current(None) is not None and new:
            work = partial(finished, self.journal.path.resolve())
            self.values |= zip(new, run_all(work, new.items()), strict=True)
        return [self.get(key, compute) for key, compute in jobs.items()]


def finished(journal: Path, job: tuple[str, Callable[[], Any]]) -> Any:
    """In a worker: one cell, computed unless another worker has it."""
    return Cells(journal).get(*job)
