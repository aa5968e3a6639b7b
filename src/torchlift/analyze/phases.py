"""What each phase of neural lifting did, in the terms of its theory."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

PHASES = ["base", "lifted", "project"]


@dataclasses.dataclass(frozen=True)
class Cycle:
    """One cycle: losses of what its phases hand on, and a, b, c, d of eqs. 7–10 of Neural lifting.

    a = L(base) − L(lifted), the gain of lifting; b = L(projected) − L(lifted), the price of projection;
    c = Γ(lifted) − Γ(base), d = Γ(lifted) − Γ(projected), the same for complexity, where it was logged;
    then also what the base phase did (eq. 7): fall = L(before it) − L(base), rise = Γ(base) − Γ(before it).
    """

    base: float
    lifted: float
    projected: float
    a: float
    b: float
    c: float | None
    d: float | None
    fall: float | None = None
    rise: float | None = None

    @property
    def gain(self) -> float:
        """a − b: how much the cycle lowers the loss beyond its base phase (eq. 10)."""
        return self.a - self.b


def cycles(history: Iterable[Mapping[str, Any]]) -> list[Cycle]:
    """The cycles of a run of ``NeuralLifting``, from the weights that each of its phases hands on.

    With ``keep="best"`` these are not the last ones: a row says whether its weights were ``kept``. Losses are
    on validation data, or of training where there were none; complexity is there if the recipe logs it.
    """
    fits = groupby(history, key=lambda row: (row.get("fit"), row.get("phase")))
    ends = [handed_on(list(rows)) for _, rows in fits]
    threes = [ends[start : start + 3] for start in range(len(ends) - 2)]
    return [cycle(three) for three in threes if [row.get("phase") for row in three] == PHASES]


def handed_on(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The row of the weights a phase ends with: the last that was kept."""
    return next((row for row in reversed(rows) if row.get("kept", True)), rows[-1])


def cycle(ends: Sequence[Mapping[str, Any]]) -> Cycle:
    """A cycle from the rows of what its three phases hand on."""
    base, lifted, projected = (loss(row) for row in ends)
    rough = [row.get("complexity") for row in ends]
    measured = [value for value in rough if value is not None]
    c, d = (measured[1] - measured[0], measured[1] - measured[2]) if len(measured) == 3 else (None, None)
    start, smooth = ends[0].get("start loss"), ends[0].get("start complexity")
    fall = None if start is None else float(start) - base
    rise = None if smooth is None or rough[0] is None else rough[0] - float(smooth)
    return Cycle(base, lifted, projected, base - lifted, projected - lifted, c, d, fall, rise)


def loss(row: Mapping[str, Any]) -> float:
    """The validation loss of a row, or its training loss."""
    value = row.get("valid_loss")
    return float(row["train_loss"] if value is None else value)
