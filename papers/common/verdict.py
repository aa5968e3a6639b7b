"""Reproduced or not: what a record says of what was published, by one rule.

A check compares two numbers of a record, or one with a given number. With several seeds two numbers differ if
the difference of their means is larger than its standard error.

* **reproduced**: all checks hold, in a record as long and as large as the paper's experiment, with its
  settings and at least three seeds (one, where nothing is random).
* **partly**: some checks hold; or all, in a record of fewer epochs, images or seeds, or of settings that the
  paper does not print.
* **not reproduced**: no check holds.
* **not run**: there is no record of this experiment. What is shown instead decides nothing: a small run, of
  less than a tenth of the published training (epochs times images), or a stand-in, another network on other
  data.
"""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from papers.common.protocol import WHOLE, Protocol

Record = Mapping[str, Any]
ENOUGH_SEEDS = 3
NEVER = "never"
"""A cell of something that did not happen."""


@dataclasses.dataclass(frozen=True)
class Value:
    """A number of a record, its spread, and over how many seeds."""

    mean: float
    sd: float | None = None
    seeds: int = 1

    def __str__(self) -> str:
        spread = "" if not self.sd else f" ± {self.sd:.2g}"
        return f"{self.mean:.4g}{spread}"

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return 0.0 if self.sd is None or self.seeds < 2 else self.sd / math.sqrt(self.seeds)


@dataclasses.dataclass(frozen=True)
class Check:
    """One claim, what was compared, and whether it holds; None: the record has no such number."""

    claim: str
    said: str
    holds: bool | None


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What is to be said of a table or figure."""

    word: str
    why: str
    checks: Sequence[Check] = ()


def value(record: Record, where: Any) -> Value | None:
    """A number by its place: ``column=text, … | column`` of a row, ``@key`` of the record, or itself.

    ``curve NAME | x`` is the height of a curve. A column ``mean`` takes its spread from ``sd`` beside it.
    """
    if isinstance(where, int | float):
        return Value(float(where))
    seeds = len(record.get("seeds") or [0])
    if where.startswith("@"):
        return number(record.get(where[1:]), seeds)
    selected, _, column = where.rpartition(" | ")
    if selected.startswith("curve "):
        return height(record, selected.removeprefix("curve "), float(column))
    wanted = dict(pair.split("=", 1) for pair in re.split(r", (?=[^,|]*=)", selected))
    cells = [
        number(row if column == "mean" else row.get(column), row.get("seeds", seeds))
        for row in record["rows"]
        if isinstance(row, Mapping) and all(same(row.get(key), text) for key, text in wanted.items())
    ]
    numbers = [one for one in cells if one is not None]
    if len(numbers) < 2:
        return numbers[0] if numbers else None
    means = [one.mean for one in numbers]  # a row for each seed
    middle = math.fsum(means) / len(means)
    deviation = math.sqrt(math.fsum((one - middle) ** 2 for one in means) / (len(means) - 1))
    return Value(middle, deviation, len(means))


def height(record: Record, name: str, x: float) -> Value | None:
    """A curve's y at x."""
    points = (
        dict(zip(curve["x"], curve["y"], strict=True)) for curve in record["curves"] if curve["name"] == name
    )
    y = next(points, {}).get(x)
    return None if y is None else Value(float(y))


def same(cell: Any, text: str) -> bool:
    """Whether a cell reads like this: 5 and 5.0 do."""
    if isinstance(cell, float) and cell.is_integer() and str(int(cell)) == text:
        return True
    return str(cell) == text


def number(cell: Any, seeds: int) -> Value | None:
    """A cell as a number: plain, a mean with its spread, or a list over seeds."""
    if isinstance(cell, Mapping) and isinstance(cell.get("mean"), int | float):
        deviation = cell.get("sd")
        if deviation is None and cell.get("high") is not None and cell.get("low") is not None:
            deviation = (cell["high"] - cell["low"]) / 3.92 * math.sqrt(seeds)  # from a 95 % interval
        return Value(float(cell["mean"]), deviation, seeds)
    if cell == NEVER or (isinstance(cell, list) and None in cell):  # never reached in some run
        return Value(math.inf, None, seeds)
    if isinstance(cell, list) and cell and all(isinstance(one, int | float) for one in cell):
        mean = math.fsum(cell) / len(cell)
        spread = (
            math.sqrt(math.fsum((v - mean) ** 2 for v in cell) / (len(cell) - 1)) if len(cell) > 1 else None
        )
        return Value(mean, spread, len(cell))
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return None
    return Value(float(cell))


def checked(record: Record, check: Mapping[str, Any]) -> Check:
    """One claim against a record."""
    relation = next(key for key in ("above", "below", "at_least", "near") if key in check)
    ours, other = value(record, check["ours"]), value(record, check[relation])
    if ours is None or other is None:
        return Check(check["claim"], "the record has no such number", None)
    gap, error = ours.mean - other.mean, math.hypot(ours.error, other.error)
    holds = {
        "above": gap > error,
        "below": -gap > error,
        "at_least": gap >= 0,
        "near": abs(gap) <= check.get("within", 0.0),
    }[relation]
    sign = {"above": ">", "below": "<", "at_least": "≥", "near": "≈"}[relation]
    return Check(check["claim"], f"{ours} {sign if holds else 'not ' + sign} {other}", holds)


def verdict(published: Protocol, record: Record | None) -> Verdict:
    """By the rule above."""
    if published.entry is None:
        return Verdict("not run", published.not_run or "there is no entry")
    if record is None:
        return Verdict("not run", published.not_run or "no record")
    if record.get("stand_in"):
        return Verdict("not run", f"a stand-in only: {record['scale']}")
    checks = [checked(record, check) for check in published.checks]
    decided = [one.holds for one in checks if one.holds is not None]
    smaller = less(published, record)
    if not decided:
        return Verdict("not run", f"the record holds nothing to compare{smaller}", checks)
    if part_of(published, record) < WHOLE:
        return Verdict(
            "not run", f"a small run only: {sum(decided)} of {len(checks)} checks hold{smaller}", checks
        )
    if not any(decided):
        return Verdict("not reproduced", f"0 of {len(decided)} checks hold" + smaller, checks)
    if all(decided) and len(decided) == len(checks) and not smaller:
        return Verdict("reproduced", f"all {len(checks)} checks hold", checks)
    return Verdict("partly", f"{sum(decided)} of {len(checks)} checks hold" + smaller, checks)


def sizes(published: Protocol, record: Record) -> dict[str, tuple[float, float]]:
    """Epochs and images of a record's command beside the paper's, where they are fewer."""
    words = str(record.get("command", "")).split()
    fewer: dict[str, tuple[float, float]] = {}
    for name, own in (("epochs", published.epochs), ("images", published.images)):
        if f"--{name}" in words and own is not None:
            used = float(words[words.index(f"--{name}") + 1])
            if used < own:
                fewer[name] = used, own
    return fewer


def part_of(published: Protocol, record: Record) -> float:
    """The part of the published training that a record has: epochs times images."""
    return math.prod(used / own for used, own in sizes(published, record).values())


def less(published: Protocol, record: Record) -> str:
    """What a record has less of than what was published; empty where nothing."""
    lacks = [str(record["partial"])] if record.get("partial") else []
    lacks += [f"{used:,.10g} of {own:,.0f} {name}" for name, (used, own) in sizes(published, record).items()]
    seeds = len(record.get("seeds") or [])
    if published.seeds and seeds < ENOUGH_SEEDS:
        lacks.append(f"{seeds} seed{'s' if seeds > 1 else ''}")
    if published.differs:
        lacks.append(published.differs)
    return f"; {', '.join(lacks)}" if lacks else ""
