"""A network in which weights are used again, drawn as a path with loops."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

STEP, RADIUS, MARGIN = 96, 17, 40
"""Pixels between two weights, of a weight, and around the drawing."""


@dataclass(frozen=True)
class Loops:
    """Circles are weights, arrows the order in which layers use them; an arrow back is a loop.

    ``names``: the weights, in order of their first use. ``path``: the number of the weight each layer uses.
    """

    names: Sequence[str]
    path: Sequence[int]
    title: str = ""
    caption: str = ""

    def __post_init__(self) -> None:
        strangers = [number for number in self.path if not 0 <= number < len(self.names)]
        if strangers:
            raise ValueError(f"Loops: no weight {strangers[0]}; there are {len(self.names)}")


def loops_view(loops: Loops) -> dict[str, Any]:
    """Everything ``loops.html`` draws: places of the weights, one curve per kind of step, its label."""
    steps: dict[tuple[int, int], list[int]] = {}
    for number, step in enumerate(zip(loops.path, loops.path[1:], strict=False), 1):
        steps.setdefault(step, []).append(number)
    reach = max((abs(b - a) for a, b in steps if b != a + 1), default=0)
    middle = MARGIN + 22 * (1 + reach)
    return {
        "figure": loops,
        "circles": [
            {"x": center(n), "name": name, "uses": list(loops.path).count(n)}
            for n, name in enumerate(loops.names)
        ],
        "arrows": [arc(a, b, numbers, middle) for (a, b), numbers in steps.items()],
        "middle": middle,
        "radius": RADIUS,
        "width": center(len(loops.names) - 1) + center(0),
        "height": 2 * middle,
        "summary": " → ".join(loops.names[number] for number in loops.path),
    }


def center(number: int) -> int:
    """Where the center of a weight is, from the left."""
    return MARGIN + RADIUS + STEP * number


def arc(a: int, b: int, numbers: list[int], middle: int) -> dict[str, Any]:
    """A step from one weight to another: straight to the next, above where it skips, below where it loops."""
    label = ", ".join(map(str, numbers[:4])) + (" …" if len(numbers) > 4 else "")
    x0, x1 = center(a), center(b)
    if b == a + 1:
        path = f"M{x0 + RADIUS},{middle}H{x1 - RADIUS - 5}"
        return {"path": path, "back": False, "x": (x0 + x1) / 2, "y": middle - 6, "label": label}
    side = 1 if b <= a else -1
    bend = middle + side * (RADIUS + 44 * (1 + abs(b - a)) // 2 + 12)
    left, right = (x0 + 8, x1 - 8) if a == b else (x0, x1)
    start, end = middle + side * RADIUS, middle + side * (RADIUS + 5)
    path = f"M{left},{start}C{left + (a == b) * 16},{bend} {right - (a == b) * 16},{bend} {right},{end}"
    height = (middle + 3 * bend) / 4
    return {"path": path, "back": b <= a, "x": (x0 + x1) / 2, "y": height + side * 9 + 4, "label": label}
