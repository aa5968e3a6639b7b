"""What ``auto`` gives back: the front, the choice, its file, and why."""

import contextlib
import dataclasses
import json
from pathlib import Path
from typing import Any

from torch import nn

from torchlift.errors import TorchliftError
from torchlift.experiments.arm import Setup
from torchlift.experiments.auto_page import auto_page
from torchlift.experiments.candidates import PLAIN
from torchlift.experiments.comparison import in_columns
from torchlift.experiments.constraints import Constraints, Delivered
from torchlift.experiments.delivery import SUFFIX, read_model
from torchlift.train.checkpoint import disk_errors, write_durable

MODEL, RESULT = f"model{SUFFIX}", "auto.json"


@dataclasses.dataclass(frozen=True, repr=False)
class AutoResult:
    """Delivered models that no other beats in metric, file and operations at once, and the one to take."""

    front: list[Delivered]
    chosen: Delivered
    rows: list[Delivered]
    """All trials, in order."""
    dropped: dict[str, str]
    """Candidates without a model, and why."""
    constraints: Constraints
    why: str
    spent: float
    budget: float
    unit: str
    folder: Path
    """Where the files are; without ``out`` it goes with this object."""
    setup: Setup
    seed: int

    def __repr__(self) -> str:
        return self.table()

    @property
    def file(self) -> Path:
        """The packed file of the chosen model."""
        return self.folder / MODEL

    @property
    def model(self) -> nn.Module:
        """The chosen model, read from its file."""
        return self.load(self.chosen)

    @property
    def plain(self) -> Delivered | None:
        """The control: the best of plain training at the cost of the winner's last trial."""
        rows = [
            row for row in self.rows if row.name == PLAIN and row.rung >= 0 and not (row.reason or row.final)
        ]
        return max(rows, key=lambda row: (row.rung, self.constraints.good(row)), default=None)

    @property
    def trial(self) -> Delivered | None:
        """The last trial of the winner, which the control is compared with."""
        rows = [row for row in self.rows if not (row.reason or row.final)]
        mine = [row for row in rows if (row.name, row.rate) == (self.chosen.name, self.chosen.rate)]
        return max(mine, key=lambda row: row.rung, default=None)

    def load(self, row: Delivered) -> nn.Module:
        """A delivered model from its file."""
        if row.packed.startswith("tensors"):
            raise TorchliftError(f"{row.file} holds {row.packed} Load its tensors into your own model.")
        return read_model(self.folder / "models" / row.file, self.setup)

    def table(self) -> str:
        """The front as text, the choice marked; below, the winner's last trial and plain at the same cost."""
        rows = list(
            {row.key: row for row in (*self.front, self.chosen, self.trial, self.plain) if row}.values()
        )
        head = ["", "metric (valid)", "file", "MACs", "latency", "test", "trained for"]
        body = [
            [
                f"{'▸ ' if row.key == self.chosen.key else '  '}{row.key}",
                f"{row.metric:.4g}",
                f"{row.bytes:,} B",
                f"{row.macs:,}",
                f"{row.latency_ms:.3g} ms",
                "" if row.test is None else f"{row.test:.4g}",
                f"{row.cost:.3g} epochs",
            ]
            for row in rows
        ]
        lines = in_columns([head, *body])
        notes = [
            self.why,
            f"{self.spent:.3g} of {self.budget:.3g} {self.unit} spent, {len(self.rows)} trials",
        ]
        reasons = dict.fromkeys(self.dropped.values())
        alike = {
            reason: [name for name in self.dropped if self.dropped[name] == reason] for reason in reasons
        }
        notes += [f"dropped {'; '.join(names)}: {reason}" for reason, names in alike.items()]
        return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:], *notes])

    def data(self) -> dict[str, Any]:
        """The search as plain data."""
        plain, trial = self.plain, self.trial
        task = self.setup.make_model()
        model = getattr(task, "model", task)
        return {
            "title": f"{type(model).__name__}: the model to ship",
            "constraints": str(self.constraints),
            "why": self.why,
            "spent": self.spent,
            "budget": self.budget,
            "unit": self.unit,
            "higher_is_better": self.constraints.higher_is_better,
            "chosen": dataclasses.asdict(self.chosen),
            "plain": None if plain is None else dataclasses.asdict(plain),
            "trial": None if trial is None else dataclasses.asdict(trial),
            "front": [dataclasses.asdict(row) for row in self.front],
            "rows": [dataclasses.asdict(row) for row in self.rows],
            "dropped": self.dropped,
            "seed": self.seed,
        }

    def saved(self) -> "AutoResult":
        """``model.tl``, ``card.json``, ``auto.json`` and, with the extra that draws it, ``report.html``."""
        file = self.folder / "models" / self.chosen.file
        write_durable(self.file, file.read_bytes())
        card = file.with_suffix(".card.json")
        if card.is_file():
            write_durable(self.folder / "card.json", card.read_bytes())
        write_durable(self.folder / RESULT, json.dumps(self.data(), default=str).encode())
        page = self.folder / "report.html"
        with contextlib.suppress(ImportError), disk_errors(page):
            self.report(page)
        return self

    def report(self, path: str | Path) -> Path:
        """Write one self-contained HTML file that explains the choice."""
        from torchlift import report

        return report.write(auto_page(json.loads(json.dumps(self.data(), default=str))), Path(path))
