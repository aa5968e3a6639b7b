"""Cost in FLOPs, as torch counts them (matrix products, convolutions, attention)."""

import copy
import dataclasses
from collections.abc import Callable

import torch

from torchlift.core import Batch, Problem
from torchlift.flops import count_flops
from torchlift.train import rng
from torchlift.train.stepping import Place, Stepper


@dataclasses.dataclass(frozen=True)
class Probe:
    """One trial step on a copy."""

    flops: int
    unused: tuple[str, ...]
    """Trainable parameters the objective does not reach."""


def probe(problem: Problem, batch: Batch, steps: int = 1) -> Probe:
    """FLOPs of one forward and backward pass, and what got no gradient; the problem is left alone.

    A problem that takes its own steps may take a dearer one at the end of its ``steps``: the mean counts.
    """
    trial = copy.deepcopy(problem).train()
    if isinstance(trial, Stepper):
        stepper: Stepper = trial
        places = [Place(batches=steps, last=steps == 1), Place(batch=steps - 1, batches=steps)]
        first, last = (count(lambda p=p: stepper.advance(batch, p)) for p in places)
        return Probe(max(1, round(((steps - 1) * first + last) / steps)), ())
    with rng.scope():
        flops = count(lambda: trial(batch).backward())
    unused = tuple(n for n, p in trial.named_parameters() if p.requires_grad and p.grad is None)
    return Probe(max(flops, 1), unused)


def count(function: Callable[[], object]) -> int:
    """FLOPs of a call."""
    with torch.enable_grad():
        return count_flops(function)
