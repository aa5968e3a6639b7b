"""Schedules of ``torch.optim.lr_scheduler``: the rates they would give, step by step."""

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, cast

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


def check_schedule(schedule: Any) -> None:
    """One line on what is wrong with a schedule, before anything is trained."""
    kind = scheduler_class(schedule)
    if kind is not None:
        arguments = schedule.args if isinstance(schedule, functools.partial) else ()
        try:
            inspect.signature(kind).bind(None, *arguments, **scheduler_options(schedule, kind, 1))
        except TypeError as error:
            raise TorchliftError(
                f"schedule {kind.__name__}: {error}; give it as partial({kind.__name__}, …)."
            ) from error
    elif callable(schedule):
        try:
            float(cast(Any, schedule)(0.0))
        except (TypeError, ValueError, AttributeError) as error:
            raise TorchliftError(
                f"schedule(t) takes the progress t, from 0 to 1, and returns a factor of the rate ({error}); "
                "a scheduler of torch is given as partial(OneCycleLR, max_lr=0.1)."
            ) from error
    elif schedule not in ("constant", "cosine"):
        raise TorchliftError(f"schedule is 'constant', 'cosine' or callable(t); got {schedule!r}.")


def scheduler_options(schedule: Any, kind: type[LRScheduler], steps: int) -> dict[str, Any]:
    """What the factory was given, with the number of steps where it takes one and has none."""
    parameters = inspect.signature(kind).parameters
    keywords = schedule.keywords if isinstance(schedule, functools.partial) else {}
    options: dict[str, Any] = {n: steps for n in LENGTHS if n in parameters and n not in keywords}
    if keywords.get("steps_per_epoch") is not None:
        options.pop("total_steps", None)
    if "cycle_momentum" in parameters:
        options["cycle_momentum"] = False  # the rate alone follows it
    return {**keywords, **options}


def torch_factors(schedule: Callable[..., LRScheduler], rate: float, steps: int) -> list[float]:
    """η_k / η for every step k of a fit: the scheduler is stepped after each step, over an idle optimizer."""
    kind = scheduler_class(schedule)
    assert kind is not None
    options = scheduler_options(schedule, kind, steps)
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
