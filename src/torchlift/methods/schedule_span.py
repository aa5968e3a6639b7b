"""Several fits along one schedule."""

from collections.abc import Callable, Iterator
from typing import Any

from torchlift.core import Fit, Lift, Problem
from torchlift.loss import Batch


class Along(Fit):
    """A fit whose calls follow the run's schedule once, from ``start`` to ``end``, instead of once each.

    A call covers as much of that stretch as its share of the budget; with ``epochs``, which branches shorten
    as they are shorter themselves, their part of ``whole``. A call that lasts until a rule says so covers
    what its share (all, unless given) would be.
    """

    def __init__(
        self, inner: Fit, start: float = 0.0, end: float = 1.0, *, whole: float | None = None
    ) -> None:
        self.inner, self.at, self.length, self.end = inner, start, end - start, end
        self.whole = inner.epochs if whole is None else whole
        self.epochs, self.steps = inner.epochs, inner.steps

    def __call__(self, problem: Problem, **settings: Any) -> Any:
        """The inner fit over the next part of the stretch."""
        epochs, share = settings.get("epochs"), float(settings.get("share") or 1.0)
        start, stop = self.next(share if epochs is None else epochs / self.whole)
        low, high = settings.get("span") or (0.0, 1.0)
        settings["span"] = (start + low * (stop - start), start + high * (stop - start))
        return self.inner(problem, **settings)

    def next(self, share: float) -> tuple[float, float]:
        """The next ``share`` of the stretch, never past its end."""
        start, self.at = self.at, min(self.end, self.at + share * self.length)
        return start, self.at

    def once(self, name: str, function: Callable[[Problem], object], problem: Problem) -> None:
        """The inner fit's."""
        self.inner.once(name, function, problem)

    def lift(self, lift: Lift, problem: Problem) -> Problem:
        """The inner fit's."""
        return self.inner.lift(lift, problem)

    def branch(self, name: str, share: float = 1.0, **settings: Any) -> "Along":
        """The inner fit's branch over the next part of the stretch."""
        return Along(self.inner.branch(name, share, **settings), *self.next(share), whole=self.whole)

    def left(self) -> float:
        """The inner fit's."""
        return self.inner.left()

    def evaluate(self, problem: Problem) -> Any:
        """The inner fit's."""
        return self.inner.evaluate(problem)

    def batches(self) -> Iterator[Batch]:
        """The inner fit's."""
        return self.inner.batches()
