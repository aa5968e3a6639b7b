"""The one protocol: problem → problem, with a way back."""

import abc
import dataclasses
from typing import Any, Protocol

from torchlift.core.errors import NeedsFitError, TorchliftError
from torchlift.core.problem import Problem


class Fit(Protocol):
    """Minimise a problem in place: data, optimiser and budget are already chosen."""

    def __call__(self, problem: Problem, **settings: Any) -> Any:
        """Train the problem; settings of the fit at hand go by keyword."""
        ...


def no_fit(problem: Problem, **settings: Any) -> None:
    """What stands in for ``fit`` where none was given."""
    who = type(problem).__name__
    raise NeedsFitError(
        f"this projection learns (a {who} problem): call project(problem, fit) with a fit that trains it."
    )


class Lift(abc.ABC):
    """min f(w) ─lift→ min F(u) ─fit→ u* ─project→ w*.

    A value: a frozen dataclass of hyper-parameters. Both methods are pure: they return something new
    and leave what they are given alone, up to the draws they make from torch's random stream.
    """

    @abc.abstractmethod
    def lift(self, problem: Problem) -> Problem:
        """The larger problem."""

    @abc.abstractmethod
    def project(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """Back to the smaller problem; a projection that learns trains through ``fit``."""

    @property
    def preserving(self) -> bool:
        """Whether the lifted problem starts as the same function."""
        return True

    @property
    def learns(self) -> bool:
        """Whether :meth:`project` needs ``fit``."""
        return False

    @property
    def reshapes(self) -> bool:
        """Whether the projected model may have other shapes or modules than the original."""
        return False

    def __deepcopy__(self, memo: dict[int, Any]) -> "Lift":
        return self  # a value: a copied problem keeps the same author


@dataclasses.dataclass(frozen=True)
class Chain(Lift):
    """Lifts applied in order, projected in reverse: F = f ∘ φ₁ ∘ φ₂, with the penalties of each."""

    lifts: tuple[Lift, ...]

    def lift(self, problem: Problem) -> Problem:
        """Apply each lift in turn."""
        for step in self.lifts:
            problem = step.lift(problem)
        return problem

    def project(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """Project each lift, the last first."""
        for step in reversed(self.lifts):
            problem = step.project(problem, fit)
        return problem

    @property
    def preserving(self) -> bool:
        """Whether every lift is."""
        return all(step.preserving for step in self.lifts)

    @property
    def learns(self) -> bool:
        """Whether any lift does."""
        return any(step.learns for step in self.lifts)

    @property
    def reshapes(self) -> bool:
        """Whether any lift does."""
        return any(step.reshapes for step in self.lifts)


def chain(*lifts: Lift) -> Chain:
    """Several lifts as one. Order: those of the objective, then of modules, then of weights."""
    flat = tuple(part for lift in lifts for part in (lift.lifts if isinstance(lift, Chain) else (lift,)))
    strangers = [part for part in flat if not isinstance(part, Lift)]
    if strangers or not flat:
        raise TorchliftError(f"chain takes one or more lifts, got {strangers or 'none'}.")
    return Chain(flat)
