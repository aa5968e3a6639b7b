"""Recipes and optimizers by name, and one line with the list where there is none of that name."""

import dataclasses
import difflib
import functools
import inspect
import re
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, TypeGuard, cast

import torch
from torch.optim import Optimizer

from torchlift import lifts, optim, recipes
from torchlift.core import Lift
from torchlift.errors import TorchliftError
from torchlift.methods.recipe import RecipeLike
from torchlift.train.optimizers import OptimizerFactory

ALIASES = {
    "sparsify": "continuous-sparsification",
    "tickets": "ticket-search",
    "magnitude": "magnitude-pruning",
    "imp": "iterative-magnitude",
}
NamedFactory = Callable[..., Any]


def recipe_names() -> dict[str, NamedFactory]:
    """The package's recipes by their names in kebab case, and the short names of some."""
    by_name = exported(recipes, object)
    return by_name | {short: by_name[name] for short, name in ALIASES.items() if name in by_name}


def lift_names() -> dict[str, NamedFactory]:
    """The package's lifts, each a recipe of its own: lift → fit → project."""
    return exported(lifts, Lift)


def exported(package: ModuleType, kind: type) -> dict[str, NamedFactory]:
    """The frozen methods a package exports, by their names in kebab case."""
    values = {name: getattr(package, name) for name in package.__all__}
    return {kebab(name): one for name, one in values.items() if is_method(one) and issubclass(one, kind)}


def is_method(one: Any) -> TypeGuard[type[Any]]:
    """Whether something is a class whose instances are methods: dataclasses are."""
    return inspect.isclass(one) and dataclasses.is_dataclass(one)


def kebab(name: str) -> str:
    """NeuralLifting → neural-lifting."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()


def is_missing(parameter: inspect.Parameter, values: Iterable[str] = ()) -> bool:
    """Whether a parameter has neither a value nor a default."""
    variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return not variadic and parameter.default is parameter.empty and parameter.name not in values


def named_recipe(recipe: str | RecipeLike | Lift | None) -> RecipeLike | Lift | None:
    """A recipe or lift with its defaults, where its name is given; anything else as it is."""
    if isinstance(recipe, type):
        raise TorchliftError(f"a recipe is an instance: recipe={recipe.__name__}(…).")
    if not isinstance(recipe, str):
        return recipe
    makers = lift_names() | recipe_names()
    maker = makers.get(kebab(recipe).replace("_", "-").replace(" ", "-"))
    if maker is None:
        raise TorchliftError(unknown("recipe", recipe, makers))
    missing = [p.name for p in inspect.signature(maker).parameters.values() if is_missing(p)]
    if missing:
        arguments = ", ".join(f"{name}=…" for name in missing)
        raise TorchliftError(
            f"recipe {recipe!r} has no default for {', '.join(missing)}: pass {maker.__name__}({arguments})."
        )
    return maker()


def optimizers() -> dict[str, type[Optimizer]]:
    """All by name, in lower case: torch's and torchlift's."""
    values = [*vars(torch.optim).values(), *(getattr(optim, name) for name in optim.__all__)]
    classes = (c for c in values if inspect.isclass(c) and issubclass(c, Optimizer) and c is not Optimizer)
    return {c.__name__.lower(): c for c in classes}


def named_optimizer(optimizer: Any) -> OptimizerFactory:
    """A factory: the one given, or the class of that name with its own defaults."""
    if isinstance(optimizer, str):
        classes = optimizers()
        kind = classes.get(optimizer.lower())
        if kind is None:
            raise TorchliftError(unknown("optimizer", optimizer, classes))
        if any(is_missing(p, ("params",)) for p in inspect.signature(kind).parameters.values()):
            raise TorchliftError(
                f"optimizer {optimizer!r} has no default rate: pass partial({kind.__name__}, lr=…)."
            )
        return kind
    if isinstance(optimizer, Optimizer):
        rate = optimizer.defaults.get("lr", "…")
        kind = type(optimizer).__name__
        raise TorchliftError(
            f"optimizer takes a factory, not an instance: fit trains a copy of the model's parameters. "
            f"Pass partial(torch.optim.{kind}, lr={rate})."
        )
    if not callable(optimizer):
        raise TorchliftError(
            f"optimizer is a name or a factory like partial(torch.optim.SGD, lr=0.1); got {optimizer!r:.40}."
        )
    return cast(OptimizerFactory, optimizer)


def option(factory: OptimizerFactory, name: str) -> Any:
    """An option of a factory: as bound, or its class's default; None where it has neither."""
    while isinstance(factory, functools.partial):
        if name in factory.keywords:
            return factory.keywords[name]
        factory = factory.func
    parameter = inspect.signature(factory).parameters.get(name)
    return None if parameter is None or parameter.default is parameter.empty else parameter.default


def unknown(what: str, name: str, choices: Iterable[str]) -> str:
    """What to say of a name that nothing has: near matches first, then all there are."""
    names = sorted(choices)
    near = difflib.get_close_matches(name, names, 2)
    hint = f"did you mean {' or '.join(repr(n) for n in near)}? " if near else ""
    return f"{what} {name!r} is not known; {hint}there are: {', '.join(names)}."
