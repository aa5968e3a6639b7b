"""A part of the budget, handed to a recipe as if it were the whole."""

from collections.abc import Callable, Iterator
from typing import Any, cast

from torchlift.core import Batch, Problem
from torchlift.train import Fit, Fitted, Score
from torchlift.train.until import Rule


class Part:
    """``fit`` with every budget multiplied by ``factor`` and every name led by ``prefix``."""

    def __init__(self, fit: Fit, factor: float, prefix: str) -> None:
        self.fit, self.factor, self.prefix = fit, factor, prefix

    @property
    def epochs(self) -> float:
        """This part of the run's epochs."""
        return self.factor * self.fit.epochs

    def __call__(self, problem: Problem, **settings: Any) -> Fitted:
        """Train the problem on this part's share."""
        until, epochs = settings.get("until"), settings.get("epochs")
        if isinstance(until, Rule):
            settings["until"] = until.scaled(self.factor)
        if epochs is not None:
            settings["epochs"] = self.factor * float(epochs)
        settings["share"] = self.factor * float(settings.get("share", 1.0))
        settings["name"] = self.named(str(settings.get("name", "fit")))
        return self.fit(problem, **settings)

    def once(self, name: str, function: Callable[[Problem], object], problem: Problem) -> None:
        """A durable step that is no fit."""
        self.fit.once(self.named(name), function, problem)

    def evaluate(self, problem: Problem) -> Score:
        """On the run's validation data."""
        return self.fit.evaluate(problem)

    def batches(self) -> Iterator[Batch]:
        """The run's training data, in order."""
        return self.fit.batches()

    def named(self, name: str) -> str:
        """A phase's name, with whose phase it is."""
        return f"{self.prefix}: {name}"


def part(fit: Fit, factor: float, prefix: str) -> Fit:
    """A part of ``fit`` that recipes can use in its place."""
    return cast(Fit, Part(fit, factor, prefix))
