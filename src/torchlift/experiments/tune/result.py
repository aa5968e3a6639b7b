"""What a search found."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from torchlift.experiments.arm import Arm
from torchlift.train.checkpoint import write_durable


@dataclasses.dataclass(frozen=True)
class Trial:
    """One point that was tried."""

    number: int
    params: dict[str, Any]
    value: float | None
    state: str
    """``complete``, ``pruned``, ``fail`` or ``running``."""
    seconds: float | None


@dataclasses.dataclass(frozen=True, repr=False)
class Tuned:
    """The best point, ready to use, and all others."""

    best: dict[str, Any]
    """The drawn parameters."""
    value: float
    values: dict[str, Any]
    """What was made of them: fields of the recipe, settings of the run, options of the optimizer."""
    arm: Arm
    """The best values as a run: its recipe, its optimizer, its settings."""
    metric: str
    higher_is_better: bool
    trials: list[Trial]
    about: dict[str, Any]
    """What was searched, in words."""

    def __repr__(self) -> str:
        return self.table()

    @property
    def recipe(self) -> Any:
        """The recipe with the best values."""
        return self.arm.recipe

    def table(self, most: int = 10) -> str:
        """The best trials as text."""
        done = sorted(
            (trial for trial in self.trials if trial.state == "complete" and trial.value is not None),
            key=lambda trial: trial.value or 0.0,
            reverse=self.higher_is_better,
        )
        states = [trial.state for trial in self.trials]
        counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        rows = [f"{t.number:>5}  {t.value:<12.6g}{params_line(t.params)}" for t in done[:most]]
        return "\n".join([f"trial  {self.metric:<12}parameters", *rows, f"{len(states)} trials: {counts}"])

    def data(self) -> dict[str, Any]:
        """The search as plain data."""
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "arm"}
        trials = [dataclasses.asdict(trial) for trial in self.trials]
        return plain | {"trials": trials, "recipe": repr(self.recipe)}

    def to_json(self, path: Path) -> None:
        """Write :meth:`data`."""
        write_durable(path, json.dumps(self.data(), default=str).encode())

    def report(self, path: str | Path) -> Path:
        """Write one self-contained HTML file."""
        from torchlift import report
        from torchlift.experiments.tune.story import tuning_page

        return report.write(tuning_page(json.loads(json.dumps(self.data(), default=str))), Path(path))


def params_line(params: dict[str, Any]) -> str:
    """Parameters in one line."""
    return "  ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in params.items())
