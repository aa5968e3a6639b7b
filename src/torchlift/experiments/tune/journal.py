"""The study's journal, as a backend of Optuna: its own leaves half a line when the disk is full."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torchlift.errors import CheckpointError
from torchlift.experiments.tune.optuna_extra import optuna
from torchlift.journal import Journal, Record


class Operations:
    """A :class:`~torchlift.journal.Journal` by the names that Optuna gives its methods."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def read_logs(self, log_number_from: int) -> Iterator[Record]:
        """The operations from a number on."""
        return self.journal.read(log_number_from)

    def append_logs(self, logs: list[Record]) -> None:
        """All of the operations, on the disk, or none."""
        self.journal.append(*logs)


def open_journal(path: Path, owner: str = "") -> Any:
    """The file as a backend of Optuna's journal storage; an operation that a crash cut short is dropped."""
    journal = Journal(path, owner)
    journal.write(b"")
    base = optuna().storages.journal.BaseJournalBackend
    return type("Backend", (Operations, base), {})(journal)


def try_one(study: Any, objective: Any) -> None:
    """One trial; a journal that cannot be written is our error, which Optuna hides behind one of its own."""
    try:
        study.optimize(objective, n_trials=1)
    except AssertionError as error:
        if isinstance(error.__context__, CheckpointError):
            raise error.__context__ from None
        raise
