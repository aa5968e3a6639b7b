"""Exact coordinates that a recipe can work in, by name."""

from collections.abc import Callable
from typing import Literal, cast

from torchlift.core import Fit, Lift, Problem, Task, nodes
from torchlift.errors import TorchliftError
from torchlift.lifts import Normalize, Standardize

Coordinates = Literal["plain", "normalized", "centered"]
COORDINATES: dict[Coordinates, Lift | None] = {
    "plain": None,
    "normalized": Normalize(),
    "centered": Standardize(),
}
"""Lifts that scale rows or shift biases alone, so that zeros survive the way down, and grids row by row."""


def check_coordinates(name: str) -> None:
    """Refuse coordinates that nobody knows."""
    if name not in COORDINATES:
        raise TorchliftError(f"coordinates {name!r} are not known: {', '.join(map(repr, COORDINATES))}.")


def within(name: Coordinates, task: Task, fit: Fit, work: Callable[[Task], Task]) -> Task:
    """What ``work`` makes of the task in these coordinates, brought back: lift, work, project."""
    lift = COORDINATES[name]
    if lift is None:
        return work(task)
    return cast(Task, lift.project(work(cast(Task, fit.lift(lift, task)))))


def accepted_within(
    name: Coordinates, task: Task, fit: Fit | None, accepts: Callable[[Task], str | None]
) -> str | None:
    """Why the coordinates, or ``accepts`` in them, refuse the task; None if neither does."""
    lift = COORDINATES[name]
    if lift is None:
        return accepts(task)
    return lift.accepts(task, fit) or accepts(cast(Task, lift.lift(task, fit)))


def delivered(problem: Problem) -> Task:
    """The task as it would leave the coordinates it is in: every lift of its modules projected."""
    while lifted := [node.way_back for _, node in nodes(problem) if node.way_back is not None]:
        problem = lifted[0].project(problem)
    assert isinstance(problem, Task)
    return problem
