"""The target of a pruning and what was achieved, for the history."""

import math
import warnings
from collections.abc import Callable

from torchlift.core import Problem, Task
from torchlift.methods.sparsity.switches import Gate
from torchlift.methods.sparsity.targets import MaskTarget

Log = Callable[[Problem], dict[str, float]]


def closed(problem: Problem, total: int | None = None) -> float:
    """The fraction of masked weights whose gate is closed: by the hard mask, not by float zeros.

    ``total``: of so many weights, those of the whole model.
    """
    gates = [module for module in problem.modules() if isinstance(module, Gate)]
    masked = sum(math.prod(gate.shape) for gate in gates)
    kept = sum(float(gate.over(gate.switches.open()).expand(gate.shape).sum()) for gate in gates)
    return (masked - kept) / (total or masked) if masked else 0.0


def sparsity_log(target: MaskTarget | None = None, total: int | None = None) -> Log:
    """The sparsity of a masked problem by its gates, that of the whole model of ``total``, and the target."""

    def numbers(problem: Problem) -> dict[str, float]:
        whole = {} if total is None else {"model_sparsity": closed(problem, total)}
        return {"sparsity": closed(problem), **whole, **({} if target is None else target.row())}

    return numbers


def with_target(log: Log, plain: Callable[[Problem], Task], target: MaskTarget | None) -> Log:
    """A log with the target and what of it is achieved in the plain task behind a problem."""

    def numbers(problem: Problem) -> dict[str, float]:
        own = {} if target is None else target.row() | target.achieved(plain(problem))
        return log(problem) | own

    return numbers


def quiet_projection(project: Callable[[Problem], Problem]) -> Callable[[Problem], Task]:
    """A projection on the way, without its warnings."""

    def preview(problem: Problem) -> Task:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            projected = project(problem)
        assert isinstance(projected, Task)
        return projected

    return preview


def itself(problem: Problem) -> Task:
    """A task that is plain already."""
    assert isinstance(problem, Task)
    return problem
