"""The one protocol: problem → problem, with a way back."""

import abc
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, cast

import torch

from torchlift.core.problem import Problem
from torchlift.errors import NeedsFitError, TorchliftError
from torchlift.loss import Batch


class Fit(abc.ABC):
    """Minimizes problems: data, optimizer and budget are already chosen. Handed to recipes and to lifts."""

    epochs: float
    """The budget: epochs of plain training."""

    steps: int
    """Steps in an epoch."""

    @abc.abstractmethod
    def __call__(self, problem: Problem, **settings: Any) -> Any:
        """Train the problem in place; settings of this call go by keyword."""

    @abc.abstractmethod
    def once(self, name: str, function: Callable[[Problem], object], problem: Problem) -> None:
        """A durable step that is no fit: ``function(problem)`` changes the problem in place."""

    def lift(self, lift: "Lift", problem: Problem) -> Problem:
        """``lift.lift(problem, fit)``, with what it computes on the bill."""
        return lift.lift(problem, self)

    @abc.abstractmethod
    def branch(self, name: str, share: float = 1.0, **settings: Any) -> "Fit":
        """A fit of its own for a part of the work: its own numbering, folder, bill and ``settings``, and
        ``share`` of the budget. What it spends is on this fit's bill too."""

    def left(self) -> float:
        """FLOPs that may still be spent; without equal cost there is no end."""
        return math.inf

    @abc.abstractmethod
    def evaluate(self, problem: Problem) -> Any:
        """The score on the validation data, or on the training data where there are none."""

    @abc.abstractmethod
    def batches(self) -> Iterator[Batch]:
        """The training data, once, in order, unchanged."""


def preset(fit: Fit, **settings: Any) -> Fit:
    """The fit for a projection that learns, with settings its call leaves open."""
    return cast(Fit, functools.partial(fit, **settings))


def needs_fit(who: object, what: str) -> NeedsFitError:
    """The error of a lift that was not given what it learns from; ``what`` it does, and how, with a fit."""
    return NeedsFitError(f"{who!r} {what} call lift(problem, fit) and project(problem, fit).")


class Lift(abc.ABC):
    """min f(w) ─lift→ min F(u) ─fit→ u* ─project→ w*.

    A value: a frozen dataclass of hyper-parameters. Both methods are pure: they return something new
    and leave what they are given alone, up to the draws they make from torch's random stream.
    A lift is a recipe too: ``tl.fit(recipe=lift)`` lifts, fits and projects.
    """

    exact: ClassVar[bool] = False
    """Whether projecting at any time keeps the function; if not, the history shows the projection's loss."""

    measures: ClassVar[bool] = False
    """Whether coordinates depend on statistics of the problem: a run that is resumed takes them again."""

    @abc.abstractmethod
    def lift(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """The larger problem; a lift that looks at data takes them from ``fit.batches()``."""

    @abc.abstractmethod
    def project(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """Back to the smaller problem; a projection that learns trains through ``fit``."""

    def accepts(self, problem: Problem, fit: Fit | None = None) -> str | None:
        """None if the problem can be lifted, else the reason why not. By default it is tried."""
        with torch.random.fork_rng(devices=[]):
            try:
                self.lift(problem, fit)
            except TorchliftError as reason:
                return str(reason)
        return None

    @property
    def preserving(self) -> bool:
        """Whether the lifted problem starts as the same function."""
        return True

    @property
    def learns(self) -> bool:
        """Whether :meth:`project` needs ``fit``."""
        return False

    @property
    def reversible(self) -> bool:
        """Whether projecting at once, before any step, gives the problem back."""
        return self.preserving and not self.learns

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

    def lift(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """Apply each lift in turn."""
        for step in self.lifts:
            problem = step.lift(problem, fit)
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
    def reversible(self) -> bool:
        """Whether every lift is."""
        return all(step.reversible for step in self.lifts)

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
