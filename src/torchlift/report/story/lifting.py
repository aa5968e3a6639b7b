"""What lifting gave and what projection took, cycle by cycle."""

from typing import TYPE_CHECKING

from torchlift.report.page import CellValue, Column
from torchlift.report.story.rows import Rows

if TYPE_CHECKING:
    from torchlift.analyze import Cycle

CYCLES = {
    "cycle": Column("cycle"),
    "base": Column("loss, base"),
    "lifted": Column("loss, lifted"),
    "projected": Column("loss, projected"),
    "a": Column("a: gain of lifting"),
    "b": Column("b: price of projection"),
    "gain": Column("a − b"),
    "c": Column("c: complexity gained"),
    "d": Column("d: complexity lost"),
}


CAPTION = "Validation losses at the ends of the phases; a cycle pays if a > b (Neural lifting, eqs. 7–10)."


def cycle_rows(history: Rows) -> list[dict[str, CellValue]]:
    """a, b, c, d of every cycle, where the history has its phases."""
    from torchlift.analyze import cycles  # loads torch, which a page without cycles does not need

    return [cycle_row(number, cycle) for number, cycle in enumerate(cycles(history), start=1)]


def cycle_row(number: int, cycle: "Cycle") -> dict[str, CellValue]:
    """One cycle as a row."""
    cells: dict[str, CellValue] = {"cycle": number, "gain": cycle.gain}
    return {key: cells.get(key, getattr(cycle, key, None)) for key in CYCLES}
