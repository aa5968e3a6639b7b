"""Cost in FLOPs, as torch counts them (matrix products, convolutions, attention)."""

import copy
import dataclasses
import functools
import math
from collections.abc import Callable

import torch
from torch.optim import Optimizer

from torchlift.core import Batch, Problem
from torchlift.core.weights import weights_in_place
from torchlift.flops import count_flops
from torchlift.train import rng
from torchlift.train.stepping import StepContext, Stepper


@dataclasses.dataclass(frozen=True)
class Probe:
    """One trial step on a copy."""

    flops: int
    unused: tuple[str, ...]
    """Trainable parameters the objective does not reach."""
    spent: int = 0
    """FLOPs of the trial itself."""


def probe(
    problem: Problem,
    batch: Batch,
    optimizer: Callable[[Problem], Optimizer] | None = None,
    steps: int = 1,
) -> Probe:
    """FLOPs of one step, and what got no gradient; the problem is left alone.

    A step is a forward and a backward pass and, where given, that of the ``optimizer`` made for the copy.
    A problem that takes its own steps may take a dearer one at the end of its ``steps``: the mean counts.
    """
    trial = copy.deepcopy(problem).train()
    if isinstance(trial, Stepper):
        contexts = [StepContext(batches=steps, last=steps == 1), StepContext(batch=steps - 1, batches=steps)]
        first, last = (count(functools.partial(trial.advance, batch, context)) for context in contexts)
        return Probe(max(1, round(((steps - 1) * first + last) / steps)), (), first + last)
    with rng.scope(), weights_in_place():
        passes = count(lambda: trial(batch).backward())
        first, later = (0, [0]) if optimizer is None else step_flops(optimizer(trial))
    unused = tuple(n for n, p in trial.named_parameters() if p.requires_grad and p.grad is None)
    mean = passes + round(sum(later) / len(later))
    return Probe(max(mean, 1), unused, passes + first + sum(later))


def step_flops(optimizer: Optimizer) -> tuple[int, list[int]]:
    """What the first step takes, which may prepare more than it does, and the steps after it.

    An optimizer whose groups have an ``every`` does part of its work only every so many steps.
    """
    first = count_flops(optimizer.step)
    period = math.lcm(*(int(group.get("every", 1)) for group in optimizer.param_groups))
    return first, [count_flops(optimizer.step) for _ in range(period)]


def count(function: Callable[[], object]) -> int:
    """FLOPs of a call."""
    with torch.enable_grad():
        return count_flops(function)
