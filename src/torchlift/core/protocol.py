"""The one protocol: problem → problem, with a way back."""

import abc
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Self, TypeVar

import torch

from torchlift.core.problem import Problem
from torchlift.errors import NeedsFitError, TorchliftError
from torchlift.loss import Batch

T = TypeVar("T")

Span = tuple[float, float]
"""A stretch of a schedule, within (0, 1)."""


class Fit(abc.ABC):
    """Minimizes problems: data, optimizer and budget are already chosen. Handed to recipes and to lifts."""

    epochs: float
    """The budget: epochs of plain training."""

    steps: int
    """Steps in an epoch."""

    settings: Any
    """What a call uses unless it says otherwise: optimizer, schedule … (``torchlift.train.Settings``)."""

    span: Span | None = None
    """The stretch of the schedule that all calls together follow once; None: each follows all of it."""

    @abc.abstractmethod
    def __call__(self, problem: Problem, **settings: Any) -> Any:
        """Train the problem in place; settings of this call go by keyword."""

    def using(self, **settings: Any) -> Self:
        """This fit, its numbering and its budget, with other defaults. (A fit without any is itself.)"""
        del settings
        return self

    def branch(self, name: str, share: float = 1.0, span: Span | None = None, **settings: Any) -> Self:
        """A fit of its own for one stage: its own numbering, folder and defaults, and ``share`` of the
        budget; what it spends, this fit spends too. ``span``: the stretch of this fit's schedule that the
        calls of the branch follow once, in turn. (A fit without a record is itself.)"""
        del name, share, span, settings
        return self

    def remember(self, name: str, function: Callable[[], T], flops: float = 0.0) -> T:
        """``function()``, computed once in the life of a run: a resumed one gets the same value back.

        The value is any tree of dicts, lists, tuples, numbers, strings and tensors. ``flops`` is what it
        costs at least: at equal cost, more than is left is an error beforehand."""
        del name, flops
        return function()

    def report(self, name: str, problem: Problem, words: str = "", **sizes: float) -> None:
        """A line for the report: in ``words``, or what the network is worth now, with ``sizes`` beside."""
        del name, problem, words, sizes

    def lift(self, lift: "Lift", problem: Problem) -> Problem:
        """``lift.lift(problem, fit)``, with what it computes counted."""
        return lift.lift(problem, self)

    def left(self) -> float:
        """FLOPs that may still be spent; without equal cost there is no end."""
        return math.inf

    @abc.abstractmethod
    def evaluate(self, problem: Problem) -> Any:
        """The score on the validation data, or on the training data where there are none."""

    @abc.abstractmethod
    def batches(self) -> Iterator[Batch]:
        """The training data, once, in order, unchanged; in batches of any size."""

    def example(self) -> Batch:
        """A batch of the size that steps take; no random stream moves."""
        return next(iter(self.batches()))


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
    def settings(self) -> Mapping[str, Any]:
        """What a fit of the lifted problem is called with, beside the run's own settings."""
        return {}

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
        return self  # a value: a copied problem keeps the same way back


@dataclasses.dataclass(frozen=True)
class LiftChain(Lift):
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
    def settings(self) -> Mapping[str, Any]:
        """Those of every lift."""
        return {name: value for step in self.lifts for name, value in step.settings.items()}

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


def chain(*lifts: Lift) -> LiftChain:
    """Several lifts as one. Order: those of the objective, then of modules, then of weights."""
    flat = tuple(step for lift in lifts for step in (lift.lifts if isinstance(lift, LiftChain) else (lift,)))
    strangers = [step for step in flat if not isinstance(step, Lift)]
    if strangers or not flat:
        raise TorchliftError(f"chain takes one or more lifts, got {strangers or 'none'}.")
    return LiftChain(flat)
