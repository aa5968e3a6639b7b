"""A recipe in parts: begun on a part of the budget, and carried on from there."""

import dataclasses

from torchlift.core import Problem, Task


@dataclasses.dataclass(frozen=True)
class Begun:
    """How far a recipe has come: the task it would deliver now, and what it goes on with."""

    task: Task
    problem: Problem
    """In the coordinates it is trained in; every part has an optimizer of its own."""
