"""Two line searches in place of a grid, for optimizers whose learning rate and ε can be tuned apart."""

import math
from typing import Any

from torchlift.errors import TorchliftError
from torchlift.experiments.tune.journal import try_one
from torchlift.experiments.tune.objective import Objective
from torchlift.experiments.tune.optuna_extra import optuna
from torchlift.experiments.tune.space import Choice, Space
from torchlift.optim import line_searches

AVAGRAD: Space = {
    "lr": Choice((0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)),
    "opt.eps": Choice((1e-8, 1e-6, 1e-4, 1e-2, 1e-1, 1.0, 10.0)),
}
"""Savarese, "Principled Approximation Methods", section 6.4.3: for AvaGrad the best learning rate hardly
depends on ε, so that 7 + 6 runs do the work of 49."""


def along_lines(study: Any, objective: Objective, trials: int | None, higher_is_better: bool) -> None:
    """Try each axis in turn, the others fixed; points the study has seen before cost nothing."""
    space = objective.space
    if callable(space) or not all(isinstance(axis, Choice) for axis in space.values()):
        raise TorchliftError("line searches need a grid: give every parameter as a choice a,b,c.")
    names = list(space)
    grid = [axis.values for axis in space.values() if isinstance(axis, Choice)]
    sign = -1.0 if higher_is_better else 1.0

    def value(*point: float) -> float:
        params = dict(zip(names, point, strict=True))
        seen = next((t for t in study.trials if t.params == params and t.state.is_finished()), None)
        if seen is None:
            study.enqueue_trial(params)
            try_one(study, objective)
            seen = study.trials[-1]
        return sign * seen.value if seen.state == optuna().trial.TrialState.COMPLETE else math.inf

    line_searches(value, grid, trials=trials)
