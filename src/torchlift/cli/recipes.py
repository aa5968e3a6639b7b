"""The recipe a command names, made from ``--set key=value``."""

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pydantic

from torchlift import recipes
from torchlift.cli.imports import import_object
from torchlift.cli.optimizers import make_optimizer
from torchlift.cli.pairs import unknown
from torchlift.train import until

ALIASES = {
    "sparsify": "continuous-sparsification",
    "tickets": "ticket-search",
    "magnitude": "magnitude-pruning",
    "imp": "iterative-magnitude",
}
Maker = Callable[..., Any]


def recipe_names() -> dict[str, Maker]:
    """The package's recipes by their names in kebab case, and the short names of some."""
    classes = (getattr(recipes, name) for name in recipes.__all__)
    found = {kebab(c.__name__): c for c in classes if inspect.isclass(c) and dataclasses.is_dataclass(c)}
    return found | {short: found[name] for short, name in ALIASES.items() if name in found}


def kebab(name: str) -> str:
    """NeuralLifting → neural-lifting."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()


def find_recipe(name: str) -> Maker:
    """A recipe's class, or the user's own."""
    if ":" in name:
        return import_object("--recipe", name)
    known = recipe_names()
    if name not in known:
        raise unknown("--recipe", name, [*known, "package.module:recipe"])
    return known[name]


def make_recipe(name: str, settings: Mapping[str, Any]) -> Any:
    """The recipe with these settings; one line on the first that is wrong."""
    maker = find_recipe(name)
    if not inspect.isclass(maker) and not settings:
        return maker
    return build_recipe(name, maker, settings)


def build_recipe(name: str, maker: Maker, settings: Mapping[str, Any]) -> Any:
    """Call the recipe's class (or function that makes one) with checked settings."""
    known = list(inspect.signature(maker).parameters)
    for key in settings:
        if key not in known:
            raise unknown(f"--set: {name}'s field", key, known)
    hints = type_hints(maker)
    values = {key: convert(f"--set {key}", value, hints.get(key, Any)) for key, value in settings.items()}
    try:
        return maker(**values)
    except TypeError as error:
        missing = [p.name for p in inspect.signature(maker).parameters.values() if is_missing(p, values)]
        if missing:
            wanted = " ".join(f"--set {field}=…" for field in missing)
            raise ValueError(f"recipe {name} needs {', '.join(missing)}: pass {wanted}") from error
        raise ValueError(f"recipe {name}: {error}") from error


def is_missing(parameter: inspect.Parameter, values: Mapping[str, Any]) -> bool:
    """Whether a parameter has neither a value nor a default."""
    variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return not variadic and parameter.default is parameter.empty and parameter.name not in values


def type_hints(maker: Maker) -> dict[str, Any]:
    """The fields' types, as far as they can be told."""
    try:
        return typing.get_type_hints(maker)
    except NameError:
        return {}


def convert(who: str, value: Any, kind: Any) -> Any:
    """A TOML value as the field's type wants it: rules and optimisers from their descriptions."""
    described = str(kind)
    if "Rule" in described:
        value = per_phase(value, as_rule)
    elif "Optimizer" in described:
        value = per_phase(
            value, lambda name: make_optimizer(name, None, {}) if isinstance(name, str) else name
        )
    try:
        adapter = pydantic.TypeAdapter[Any](kind, config=pydantic.ConfigDict(arbitrary_types_allowed=True))
        return adapter.validate_python(value)
    except pydantic.ValidationError as error:
        reasons = dict.fromkeys(one["msg"][0].lower() + one["msg"][1:] for one in error.errors())
        raise ValueError(f"{who}: {'; or '.join(reasons)}; got {value!r}") from error
    except pydantic.PydanticUserError:
        return tuple(value) if isinstance(value, list) else value


def per_phase(value: Any, one: Callable[[Any], Any]) -> Any:
    """A value for all phases, or one for each."""
    return (
        tuple(one(part) for part in value)
        if isinstance(value, Sequence) and not isinstance(value, str)
        else one(value)
    )


def as_rule(value: Any) -> Any:
    """``30`` → Epochs(30); ``{patience=12, cap=90}`` → Plateau; ``{grad_norm=1e-3, cap=90}`` → Stationary."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return until.Epochs(value)
    if not isinstance(value, Mapping):
        return value
    kind = until.Stationary if "grad_norm" in value else until.Plateau
    try:
        return kind(**value)
    except TypeError as error:
        raise ValueError(
            "--set until takes epochs, {patience = 12, cap = 90} or {grad_norm = 1e-3, cap = 90}; "
            f"got {dict(value)}"
        ) from error
