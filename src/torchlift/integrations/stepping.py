"""What a lifted problem needs from a training loop that knows nothing of lifts."""

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from torchlift.core import Lift, Problem, anneal, groups
from torchlift.core.gradient_step import GradientStep
from torchlift.errors import NeedsFitError, TorchliftError
from torchlift.train.optimizers import OptimizerFactory, make_optimizer


class Stepping(GradientStep):
    """The parts of a step for a loop that has a forward, a backward and an optimizer of its own."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.hooks: list[RemovableHandle] = [
            parameter.register_hook(functools.partial(torch.mul, mask)) for parameter, mask in self.masked
        ]

    def before(self, step: int, total: int) -> None:
        """Turn the dials for step 0 … total − 1."""
        anneal(self.problem, min(1.0, max(0, step) / max(1, total - 1)))

    def close(self) -> None:
        """Leave the parameters as they were: without hooks."""
        for hook in self.hooks:
            hook.remove()


def node_optimizer(
    problem: Problem, factory: OptimizerFactory, options: Mapping[str, Mapping[str, Any]] | None
) -> Optimizer:
    """The optimizer over a problem's coordinates, with the options its nodes ask for."""
    if options is not None:
        groups(problem, options)  # or an error that says what is wrong with them
    return make_optimizer(problem, factory, () if options is None else (options,))


def wants_options(problem: Problem) -> bool:
    """Whether an optimizer made from ``parameters()`` alone would drop what nodes ask for."""
    parameter_groups = groups(problem, {"*": {}})
    return any(set(group) - {"params"} for group in parameter_groups)


def check_lift(lift: object, where: str) -> Lift:
    """A lift that a strange loop can carry: it projects without training."""
    if not isinstance(lift, Lift):
        raise TorchliftError(f"{where} takes a lift such as tl.lifts.SoftMask(), got {lift!r:.60}.")
    if lift.learns:
        raise NeedsFitError(
            f"{lift!r} trains while it projects, which {where} cannot do: use tl.fit with a recipe."
        )
    return lift


def penalty_gradients(problem: Problem) -> list[tuple[Tensor, Tensor]]:
    """Parameters with the gradient of what lifts add to the objective; empty where they add nothing."""
    extra = problem.penalty()
    if not isinstance(extra, Tensor) or not extra.requires_grad:
        return []
    parameters = [p for p in problem.parameters() if p.requires_grad]
    gradients: Any = torch.autograd.grad(extra, parameters, allow_unused=True)
    return [(p, g) for p, g in zip(parameters, gradients, strict=True) if g is not None]
