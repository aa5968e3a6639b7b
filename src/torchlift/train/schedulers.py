"""Schedules of ``torch.optim.lr_scheduler``: the rates they would give, step by step."""

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from torchlift.errors import TorchliftError

LENGTHS = ("total_steps", "T_max", "total_iters")
"""What schedulers call the number of steps, which a fit knows."""


def scheduler_class(schedule: Any) -> type[LRScheduler] | None:
    """The scheduler of torch that a factory makes, ``partial(OneCycleLR, max_lr=0.1)`` say."""
    kind = schedule.func if isinstance(schedule, functools.partial) else schedule
    if isinstance(schedule, LRScheduler | ReduceLROnPlateau):
        raise TorchliftError(
            f"schedule takes a factory, for fits make their own optimizers: "
            f"partial({type(schedule).__name__}, …), not an instance."
        )
    if inspect.isclass(kind) and issubclass(kind, ReduceLROnPlateau):
        raise TorchliftError("ReduceLROnPlateau has no rates before training: use patience=, or 'cosine'.")
    return kind if inspect.isclass(kind) and issubclass(kind, LRScheduler) else None


def torch_factors(schedule: Callable[..., LRScheduler], rate: float, steps: int) -> list[float]:
    """η_k / η for every step k of a fit: the scheduler is stepped after each step, over an idle optimizer."""
    kind = scheduler_class(schedule)
    assert kind is not None
    parameters = inspect.signature(kind).parameters
    keywords = schedule.keywords if isinstance(schedule, functools.partial) else {}
    options: dict[str, Any] = {n: steps for n in LENGTHS if n in parameters and n not in keywords}
    if keywords.get("steps_per_epoch") is not None:
        options.pop("total_steps", None)
    if "cycle_momentum" in parameters:
        options["cycle_momentum"] = False  # the rate alone follows it
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=rate)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scheduler = schedule(optimizer, **options)
        factors: list[float] = []
        for _ in range(steps):
            factors.append(float(optimizer.param_groups[0]["lr"]) / rate)
            optimizer.step()
            if len(factors) < steps:
                scheduler.step()
    return factors
