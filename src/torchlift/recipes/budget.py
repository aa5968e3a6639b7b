"""A part of the budget, handed to a recipe as if it were the whole."""

from collections.abc import Callable
from typing import Any

from torchlift.core import Problem
from torchlift.train import Fit, Fitted
from torchlift.train.until import Rule


class Part(Fit):
    """``whole`` with every budget multiplied by ``factor`` and every name led by ``prefix``."""

    def __init__(self, whole: Fit, factor: float, prefix: str) -> None:
        super().__init__(whole.run)
        self.whole, self.factor, self.prefix = whole, factor, prefix

    @property
    def epochs(self) -> float:
        """This part of the run's epochs."""
        return self.factor * self.whole.epochs

    def __call__(self, problem: Problem, **changes: Any) -> Fitted:
        """Train the problem on this part's share."""
        until, epochs = changes.get("until"), changes.get("epochs")
        if isinstance(until, Rule):
            changes["until"] = until.scaled(self.factor)
        if epochs is not None:
            changes["epochs"] = self.factor * float(epochs)
        changes["share"] = self.factor * float(changes.get("share", 1.0))
        changes["name"] = self.named(str(changes.get("name", "fit")))
        return self.whole(problem, **changes)

    def once(self, name: str, function: Callable[[Problem], object], problem: Problem) -> None:
        """A durable step that is no fit."""
        self.whole.once(self.named(name), function, problem)

    def named(self, name: str) -> str:
        """A phase's name, with whose phase it is."""
        return f"{self.prefix}: {name}"
