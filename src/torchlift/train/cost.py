"""Cost in FLOPs, as torch counts them (matrix products, convolutions, attention)."""

import copy
import dataclasses
from collections.abc import Callable

import torch

from torchlift.core import Batch, Problem
from torchlift.flops import count_flops
from torchlift.train import rng


@dataclasses.dataclass(frozen=True)
class Probe:
    """One trial step on a copy."""

    flops: int
    unused: tuple[str, ...]
    """Trainable parameters the objective does not reach."""


def probe(problem: Problem, batch: Batch) -> Probe:
    """FLOPs of one forward and backward pass, and what got no gradient; the problem is left alone."""
    trial = copy.deepcopy(problem).train()
    with rng.scope():
        flops = count(lambda: trial(batch).backward())
    unused = tuple(n for n, p in trial.named_parameters() if p.requires_grad and p.grad is None)
    return Probe(max(flops, 1), unused)


def count(function: Callable[[], object]) -> int:
    """FLOPs of a call."""
    with torch.enable_grad():
        return count_flops(function)
