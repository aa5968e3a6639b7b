"""A run as a value, so that other processes can have it."""

import copy
import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from torchlift.core import Lift
from torchlift.methods.recipe import RecipeLike
from torchlift.train import rng
from torchlift.train.run.fit import fit
from torchlift.train.run.result import Result


@dataclasses.dataclass(frozen=True)
class Given:
    """A model that is there, as a factory: copies of it."""

    model: nn.Module

    def __call__(self) -> nn.Module:
        """The same weights every time."""
        return copy.deepcopy(self.model)


@dataclasses.dataclass(frozen=True)
class Job:
    """One run: a value, so that other processes can have it."""

    make_model: Callable[[], nn.Module]
    data: tuple[Any, Any, Any]
    """For training, validation, test."""
    recipe: RecipeLike | Lift | None
    seed: int
    out: Path | None
    settings: Mapping[str, Any]

    def changed(self, seed: int, out: Path | None, **settings: Any) -> "Job":
        """The run of another seed, in its own folder."""
        return dataclasses.replace(self, seed=seed, out=out, settings={**self.settings, **settings})

    def __call__(self) -> Result:
        """Train."""
        train, valid, test = self.data
        with rng.scope(self.seed):
            model = self.make_model()
        return fit(
            model,
            train,
            valid,
            test=test,
            recipe=self.recipe,
            seed=self.seed,
            out=self.out,
            equal_cost=True,
            **self.settings,
        )


def run_job(job: Job) -> Result:
    """In this process or another."""
    return job()
