"""Neural lifting: base, lifted and projection phases, in cycles."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from torch import nn

from torchlift.analyze.smoothness import SmoothnessMeasure as Complexity
from torchlift.analyze.smoothness import complexity
from torchlift.core import Fit, Lift, Problem, Task
from torchlift.errors import TorchliftError
from torchlift.loss import inputs_and_target
from torchlift.methods.neural_lifting.distil import Match
from torchlift.methods.neural_lifting.lifter import Factory, Lifter, LifterKind, deviation
from torchlift.methods.neural_lifting.residual import LifterInit
from torchlift.methods.recipe import Recipe, lift_from_fields
from torchlift.train.settings import OptimizerFactory, Schedule
from torchlift.train.until import Rule

PHASES = ("base", "lifted", "project")


@dataclasses.dataclass(frozen=True)
class NeuralLifting(Recipe):
    """Train head ∘ trunk, then head ∘ e ∘ trunk with e ≈ id, then distil e ∘ trunk into trunk; repeat.

    Neural lifting, Algorithm 2; with ``mix=1`` Algorithm 1. The lifter's fields are those of
    :class:`~torchlift.lifts.Lifter`. ``until``, ``lrs``, ``optimizers`` and ``schedules`` go by phase
    (base, lifted, project); one rule serves all three; what is left out comes from the run. Without
    ``until`` the run's epochs are split equally over all phases. ``keep``: each phase hands on its best
    weights on validation data, or its last. With ``complexity`` the history also holds that measure of the
    function, for a, b, c, d of eqs. 7–10 (:func:`torchlift.analyze.cycles`).
    """

    where: str
    kind: LifterKind | Factory | nn.Module = "mlp"
    width: int | None = None
    init: LifterInit = "zeros"
    sparsity: float = 0.0
    scale: float = 1.0
    until: Rule | tuple[Rule, Rule, Rule] | None = None
    lrs: tuple[float, float, float] | None = None
    mix: float | tuple[float, float] = 0.2
    match: Match = "mse"
    freeze_head: bool = False
    cycles: int = 1
    keep: Literal["best", "last"] = "best"
    optimizers: tuple[OptimizerFactory, OptimizerFactory, OptimizerFactory] | None = None
    schedules: tuple[str | Schedule, str | Schedule, str | Schedule] | None = None
    features: int | None = None
    index: int | str | None = None
    activation: Literal["relu", "none"] = "relu"
    complexity: Complexity | None = None

    def __post_init__(self) -> None:
        for name in ("until", "lrs", "optimizers", "schedules"):
            value = getattr(self, name)
            if isinstance(value, tuple | list) and len(value) != 3:
                raise TorchliftError(
                    f"NeuralLifting's {name} takes one value per phase {PHASES}, got {value}."
                )
        rules = self.until if isinstance(self.until, tuple | list) else (self.until,)
        for rule in rules:
            if not isinstance(rule, Rule | None):
                raise TorchliftError(
                    f"NeuralLifting's until takes rules, tl.until.Epochs(2) say, got {rule!r}."
                )
        if self.cycles < 1:
            raise TorchliftError(f"NeuralLifting needs at least one cycle, got {self.cycles}.")
        _ = self.lifter

    @property
    def lifter(self) -> Lifter:
        """The lift between the phases."""
        return lift_from_fields(Lifter, self)

    def lifts(self) -> Iterable[Lift]:
        """The lifter."""
        return (self.lifter,)

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """What the lifter says."""
        return self.lifter.accepts(task, fit)

    def __call__(self, task: Task, fit: Fit) -> Task:
        """The three phases, ``cycles`` times."""
        reason = self.accepts(task, fit)  # what cannot be lifted is said now, not after the base phase
        if reason is not None:
            raise TorchliftError(reason)
        small: Problem = task
        for number in range(self.cycles):
            start = self.before_cycle(small, fit, number)
            fit(small, name="base", log=self.log(fit, start), **self.phase(0))
            lifted = self.lifter.lift(small)
            fit(lifted, name="lifted", log=self.log(fit), **self.phase(1))
            small = self.lifter.project(lifted, fit.using(log=self.log(fit), **self.phase(2)))
        assert isinstance(small, Task)
        return small

    def phase(self, number: int) -> dict[str, Any]:
        """The settings of one phase's fit."""
        rule = self.until if isinstance(self.until, Rule | None) else self.until[number]
        return {
            "until": rule and rule.scaled(1.0),
            "share": 1 / (len(PHASES) * self.cycles),
            "lr": self.lrs and self.lrs[number],
            "optimizer": self.optimizers and self.optimizers[number],
            "schedule": self.schedules and self.schedules[number],
            "keep": self.keep,
        }

    def before_cycle(self, problem: Problem, fit: Fit, cycle: int) -> dict[str, float]:
        """Loss and complexity before a cycle's base phase, with ``complexity`` (eq. 7)."""
        measure = self.complexity
        if measure is None:
            return {}

        def numbers() -> dict[str, float]:
            rough = complexity(problem, inputs_and_target(next(iter(fit.batches())))[0], measure)
            return {"start loss": fit.evaluate(problem).loss, "start complexity": rough}

        return fit.remember(f"start of cycle {cycle + 1}", numbers)

    def log(
        self, fit: Fit, start: Mapping[str, float] | None = None
    ) -> Callable[[Problem], dict[str, float]]:
        """For the history: the lifters' distance from the identity, and the function's complexity."""
        batch = next(iter(fit.batches()))

        def numbers(problem: Problem) -> dict[str, float]:
            named = {f"deviation {name}": value for name, value in deviation(problem, batch).items()}
            if self.complexity is None:
                return named
            rough = complexity(problem, inputs_and_target(batch)[0], self.complexity)
            return named | {"complexity": rough} | dict(start or {})

        return numbers
