"""What a step of each arm costs: seconds on this machine, measured in turn, or FLOPs."""

import copy
import functools
import math
import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import distributed
from torch.utils._python_dispatch import (
    _disable_current_modes,  # pyright: ignore[reportPrivateUsage]  (a counter of FLOPs would be measured too)
)

from torchlift.core import Fit, Task
from torchlift.core.gradient_step import GradientStep
from torchlift.experiments.arm import Arm
from torchlift.methods.recipe import as_recipe
from torchlift.train import rng
from torchlift.train.cost import probe
from torchlift.train.settings import OptimizerFactory, Settings
from torchlift.train.stepping import Stepper


def arm_settings(arm: Arm, **more: Any) -> dict[str, Any]:
    """An arm's own settings of a fit."""
    return {**arm.settings, "optimizer": arm.optimizer, "rate": arm.rate, **more}


def step_times(arms: Mapping[str, Arm], task: Task, fit: Fit, rounds: int) -> dict[str, float]:
    """CPU seconds of one step of every arm, the least of ``rounds``; 0 for problems with steps of their own.

    Steps are taken on copies, in turn, so that a busy machine slows all of them down alike. Arms that differ
    in their rates alone are measured once: noise must not tell them apart. An optimizer that works harder
    every few steps is measured over whole periods, in fewer rounds.
    """
    batch = fit.example()
    measured: list[tuple[str, float, GradientStep, int]] = []
    same = {name: next(other for other in arms if differ_in_rates(arms[other], arms[name])) for name in arms}
    with rng.scope(), _disable_current_modes():
        for name in dict.fromkeys(same.values()):
            settings: Settings = fit.settings.changed(arm_settings(arms[name]))
            for problem, portion in as_recipe(arms[name].recipe).trained_problems(copy.deepcopy(task), fit):
                if isinstance(problem, Stepper):
                    continue
                problem.train()
                optimizer = settings.make_optimizer(problem)
                period = math.lcm(*(int(group.get("every", 1)) for group in optimizer.param_groups))
                step = GradientStep(problem, optimizer, settings.clip)
                _ = one_step(step, batch)  # states are made
                measured.append((name, portion, step, period))
        least = [math.inf] * len(measured)
        for turn in range(rounds):
            for number, (_, _, step, period) in enumerate(measured):
                if turn >= max(2, rounds // period):
                    continue
                seconds = sum(one_step(step, batch) for _ in range(period)) / period
                least[number] = min(least[number], seconds)
    spent = dict.fromkeys(arms, 0.0)
    for (name, portion, _, _), seconds in zip(measured, least, strict=True):
        spent[name] += portion * seconds
    return together({name: spent[same[name]] for name in arms})


def differ_in_rates(one: Arm, other: Arm) -> bool:
    """Whether two arms differ in their rates alone."""

    def rest(arm: Arm) -> tuple[Any, ...]:
        return arm.recipe, rateless(arm.optimizer), arm.settings, arm.model

    return rest(one) == rest(other)


def rateless(optimizer: OptimizerFactory | None) -> Any:
    """An optimizer without its rate."""
    if not isinstance(optimizer, functools.partial):
        return optimizer
    options = {name: value for name, value in optimizer.keywords.items() if name != "lr"}
    return optimizer.func, optimizer.args, options


def together(spent: dict[str, float]) -> dict[str, float]:
    """The mean over processes, where there are several: all must take the same steps."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return spent
    values = torch.tensor(list(spent.values()), dtype=torch.float64)
    distributed.all_reduce(values)
    return dict(zip(spent, (values / distributed.get_world_size()).tolist(), strict=True))


def arm_step_flops(arms: Mapping[str, Arm], task: Task, fit: Fit) -> dict[str, float]:
    """FLOPs of one step of every arm, its optimizer's too."""
    batch = fit.example()
    spent = dict.fromkeys(arms, 0.0)
    for name, arm in arms.items():
        settings: Settings = fit.settings.changed(arm_settings(arm))
        for problem, portion in as_recipe(arm.recipe).trained_problems(copy.deepcopy(task), fit):
            spent[name] += portion * probe(problem, batch, settings.make_optimizer).flops
    return spent


def one_step(step: GradientStep, batch: Any) -> float:
    """CPU seconds of a step, whatever its objective becomes."""
    started = time.process_time()
    step.gradients(batch)
    step.update()
    return time.process_time() - started
