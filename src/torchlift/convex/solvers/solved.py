"""What a solver says of its answer, and the error where an exact one was required and it is not."""

import warnings
from typing import NamedTuple, Protocol

from torch import Tensor


class Solved(NamedTuple):
    """An answer, whether the solver's own test was met, and what is left of the optimality conditions."""

    x: Tensor
    converged: bool
    residual: float
    steps: int


class StoppedShortWarning(UserWarning):
    """An exact answer is required, and the solver stopped before it had one."""


def tell(what: str, solution: Solved, fix: str) -> Tensor:
    """The answer; if it is not exact, with one line that says how far it got and what to do."""
    if not solution.converged:
        text = f"{what} stopped after {solution.steps} steps with {solution.residual:.2g} left to do; {fix}"
        warnings.warn(text, StoppedShortWarning, stacklevel=3)
    return solution.x


class Sums(Protocol):
    """Completes sums over samples that are spread over processes."""

    @property
    def processes(self) -> int:
        """How many there are."""
        ...

    def sum(self, local: Tensor) -> Tensor:
        """The sum over all of them."""
        ...


class Here:
    """All samples are in this process."""

    processes = 1

    def sum(self, local: Tensor) -> Tensor:
        """The local sum itself."""
        return local
