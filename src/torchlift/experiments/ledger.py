"""What a search has spent and tried, a record per trial."""

import dataclasses
from pathlib import Path
from typing import Any

from torchlift.experiments.constraints import Delivered
from torchlift.journal import Journal, Record


class Ledger:
    """The records of a search: its plan and its trials, by their kind."""

    def __init__(self, path: Path, owner: str = "") -> None:
        self.journal = Journal(path, owner)
        self.records = list(self.journal.read())

    def append(self, kind: str, record: Record) -> None:
        """One more record, on the disk before this returns."""
        self.journal.append({"kind": kind, **record})
        self.records.append({"kind": kind, **record})

    def of(self, kind: str) -> list[Record]:
        """The records of a kind, in order."""
        return [{k: v for k, v in one.items() if k != "kind"} for one in self.records if one["kind"] == kind]

    @property
    def rows(self) -> list[Delivered]:
        """The trials."""
        fields: list[dict[str, Any]] = [{**one, "stages": tuple(one["stages"])} for one in self.of("trial")]
        return [Delivered(**one) for one in fields]

    def add(self, row: Delivered) -> None:
        """A trial that is done."""
        self.append("trial", dataclasses.asdict(row))

    def spent(self) -> float:
        """Seconds of all trials."""
        return sum(row.seconds for row in self.rows)
