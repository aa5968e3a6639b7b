"""What each phase of neural lifting did, in the terms of its theory."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

PHASES = ["base", "lifted", "project"]


@dataclasses.dataclass(frozen=True)
class Cycle:
    """One cycle: losses at the ends of its phases, and what eqs. 7–10 of Neural lifting call a, b, c, d.

    a = L(base) − L(lifted), the gain of lifting; b = L(projected) − L(lifted), the price of projection;
    c = Γ(lifted) − Γ(base), d = Γ(lifted) − Γ(projected), the same for complexity, where it was logged.
    """

    base: float
    lifted: float
    projected: float
    a: float
    b: float
    c: float | None
    d: float | None

    @property
    def gain(self) -> float:
        """a − b: how much the cycle lowers the loss beyond its base phase (eq. 10)."""
        return self.a - self.b


def cycles(history: Iterable[Mapping[str, Any]]) -> list[Cycle]:
    """The cycles of a run of ``NeuralLifting``, from the last row of each of its phases.

    Losses are on validation data, or of training where there were none; complexity is there if the
    recipe was asked to log it.
    """
    fits = groupby(history, key=lambda row: (row.get("fit"), row.get("phase")))
    ends = [list(rows)[-1] for _, rows in fits]
    threes = [ends[start : start + 3] for start in range(len(ends) - 2)]
    return [cycle(three) for three in threes if [row.get("phase") for row in three] == PHASES]


def cycle(ends: Sequence[Mapping[str, Any]]) -> Cycle:
    """A cycle from the last rows of its three phases."""
    base, lifted, projected = (loss(row) for row in ends)
    rough = [row.get("complexity") for row in ends]
    measured = [value for value in rough if value is not None]
    c, d = (measured[1] - measured[0], measured[1] - measured[2]) if len(measured) == 3 else (None, None)
    return Cycle(base, lifted, projected, base - lifted, projected - lifted, c, d)


def loss(row: Mapping[str, Any]) -> float:
    """The validation loss of a row, or its training loss."""
    value = row.get("valid_loss")
    return float(row["train_loss"] if value is None else value)
