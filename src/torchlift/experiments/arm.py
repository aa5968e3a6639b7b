"""A run as a value: a recipe, an optimizer, further settings. What is compared, tuned and searched."""

import copy
import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from torchlift.core import Lift
from torchlift.errors import TorchliftError
from torchlift.methods.recipe import RecipeLike
from torchlift.train import rng
from torchlift.train.optimizers import ADAMW
from torchlift.train.run.fit import fit
from torchlift.train.run.names import named_optimizer, named_recipe, option, unknown
from torchlift.train.run.result import Result
from torchlift.train.settings import OptimizerFactory

AnyRecipe = str | RecipeLike | Lift | None
SHARED = ("problem", "train", "valid", "test", "recipe", "optimizer", "seed", "out", "resume", "overwrite")
"""What an arm does not set: its own two fields, and what belongs to the experiment."""

R = TypeVar("R")


@dataclasses.dataclass(frozen=True, init=False)
class Arm:
    """One way of training: ``Arm(recipe, optimizer, clip=1.0, schedule="cosine")``.

    Args:
        recipe: as for :func:`torchlift.fit`.
        optimizer: a factory or a name; the experiment's unless given.
        rate: times the optimizer's learning rate.
        model: a function that makes another network than the experiment's (:func:`torchlift.compare` alone).
        settings: further settings of :func:`torchlift.fit`, which go before the experiment's.
    """

    recipe: RecipeLike | Lift | None
    optimizer: OptimizerFactory | None
    rate: float
    settings: Mapping[str, Any]
    model: Callable[[], nn.Module] | None

    def __init__(
        self,
        recipe: AnyRecipe = None,
        optimizer: str | OptimizerFactory | None = None,
        rate: float = 1.0,
        settings: Mapping[str, Any] | None = None,
        model: Callable[[], nn.Module] | None = None,
        **more: Any,
    ) -> None:
        together = {**(settings or {}), **more}
        allowed = [name for name in inspect.signature(fit).parameters if name not in SHARED]
        for name in together:
            if name in SHARED:
                raise TorchliftError(f"{name} belongs to the experiment, not to an Arm: pass it there.")
            if name not in allowed:
                raise TorchliftError(unknown("setting", name, allowed))
        if not rate > 0:
            raise TorchliftError(f"an Arm's rate multiplies the learning rate: above 0, got {rate!r}.")
        values = {
            "recipe": named_recipe(recipe),
            "optimizer": None if optimizer is None else named_optimizer(optimizer),
            "rate": rate,
            "settings": together,
            "model": model,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, recipe: "Arm | AnyRecipe") -> "Arm":
        """An arm as it is; a recipe as an arm."""
        return recipe if isinstance(recipe, Arm) else cls(recipe)

    def merged(self, shared: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of a run: the experiment's, then these."""
        settings: dict[str, Any] = {"optimizer": ADAMW, **shared, **self.settings, "recipe": self.recipe}
        if self.optimizer is not None:
            settings["optimizer"] = self.optimizer
        if self.rate == 1.0:
            return settings
        lr = option(settings["optimizer"], "lr")
        if lr is None:
            raise TorchliftError(
                "an Arm's rate multiplies lr, which this optimizer does not have: leave it out."
            )
        return settings | {"optimizer": with_options(settings["optimizer"], {"lr": lr * self.rate})}


@dataclasses.dataclass(frozen=True)
class Setup:
    """What all arms of an experiment share: the model, the data, the settings."""

    make_model: Callable[[], nn.Module]
    data: Any
    """For training, validation, test, or ``Splits`` of :mod:`torchlift.data`; or a function of the seed."""
    settings: Mapping[str, Any]

    def splits(self, seed: int) -> Any:
        """The data of a seed, as they are given."""
        return self.data(seed) if callable(self.data) else self.data

    def split_data(self, seed: int) -> tuple[Any, Any, Any]:
        """The data of a seed: for training, validation, test."""
        data = self.splits(seed)
        return data if isinstance(data, tuple) else (data.train, data.valid, data.test)

    def model(self, arm: Arm, seed: int) -> nn.Module:
        """An arm's network with the weights of a seed."""
        with rng.scope(seed):
            return (arm.model or self.make_model)()

    def run(self, arm: Arm, seed: int, out: Path | None = None, **own: Any) -> Result:
        """Train an arm from the seed's model; ``own`` settings of this run go before the arm's."""
        data = self.splits(seed)
        train, valid, test = data if isinstance(data, tuple) else (data.train, data.valid, data.test)
        schema: dict[str, Any] = {"schema": getattr(data, "schema", None)}
        settings = schema | arm.merged(self.settings) | own
        return fit(self.model(arm, seed), train, valid, test=test, seed=seed, out=out, **settings)


@dataclasses.dataclass(frozen=True)
class CopyOf:
    """A model as a factory: copies of it, with the same weights every time."""

    model: nn.Module

    def __call__(self) -> nn.Module:
        """A copy."""
        return copy.deepcopy(self.model)


def check_models(arms: Mapping[str, Arm], whose: str) -> None:
    """Raise where an arm has a network of its own and all are to deliver one and the same."""
    for name, arm in arms.items():
        if arm.model is not None:
            raise TorchliftError(
                f"{name!r} has a model of its own, which {whose} has no use for: leave it out."
            )


def check_settings(settings: Mapping[str, Any], what: str, length: str = "") -> None:
    """Raise on what ``fit`` does not take, and on ``epochs`` where ``length`` says how long runs are."""
    if length and "epochs" in settings:
        raise TorchliftError(f"{what}'s runs are as long as {length} says: pass that in place of epochs=.")
    allowed = inspect.signature(fit).parameters
    for name in settings:
        if name not in allowed:
            raise TorchliftError(unknown(f"setting of {what}", name, allowed))


def run_job(job: Callable[[], R]) -> R:
    """A job, in this process or another."""
    return job()


def with_options(factory: OptimizerFactory, options: Mapping[str, Any]) -> OptimizerFactory:
    """The optimizer with some options replaced."""
    if not options:
        return factory
    kind = factory.func if isinstance(factory, functools.partial) else factory
    parameters = inspect.signature(kind).parameters
    for name in options:
        if name not in parameters:
            raise TorchliftError(f"{kind.__name__} has no option {name!r}; it has {', '.join(parameters)}.")
    return functools.partial(factory, **options)
