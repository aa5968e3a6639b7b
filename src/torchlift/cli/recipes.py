"""The recipe a command names, made from ``--set key=value``; a single lift is one too."""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

from torchlift.cli.fields import convert, is_tensors, type_hints
from torchlift.cli.imports import import_object
from torchlift.cli.pairs import unknown_name
from torchlift.train.run.names import NamedFactory, is_method, is_missing, lift_names, recipe_names


def find_recipe(name: str) -> NamedFactory:
    """The class of a recipe or a lift, or the user's own."""
    if ":" in name:
        return import_object("--recipe", name)
    whole, single = recipe_names(), lift_names()
    if name not in whole | single:
        have = f"recipes: {', '.join(whole)}; lifts: {', '.join(single)}; or package.module:recipe"
        raise unknown_name("--recipe", name, [*whole, *single], have)
    return (single | whole)[name]


def make_recipe(name: str, settings: Mapping[str, Any]) -> Any:
    """The recipe with these settings; one line on the first that is wrong."""
    maker = find_recipe(name)
    if not inspect.isclass(maker) and not settings:
        return maker
    return build_recipe(name, maker, settings)


def build_recipe(name: str, maker: NamedFactory, settings: Mapping[str, Any]) -> Any:
    """Call the recipe's class (or function that makes one) with checked settings."""
    fields = list(inspect.signature(maker).parameters)
    for key in settings:
        if key not in fields:
            raise unknown_name(f"--set: {name}'s field", key, fields)
    hints = type_hints(maker)
    check_no_tensors(name, maker, hints, settings)
    values = {key: convert(f"--set {key}", value, hints.get(key, Any)) for key, value in settings.items()}
    try:
        return maker(**values)
    except TypeError as error:
        missing = [p.name for p in inspect.signature(maker).parameters.values() if is_missing(p, values)]
        if missing:
            wanted = " ".join(f"--set {field}=…" for field in missing)
            raise ValueError(f"recipe {name} needs {', '.join(missing)}: pass {wanted}") from error
        raise ValueError(f"recipe {name}: {error}") from error


def check_no_tensors(
    name: str, maker: NamedFactory, hints: Mapping[str, Any], settings: Mapping[str, Any]
) -> None:
    """Data that are needed or given: a flag holds none. A method's data do not count in comparing it."""
    fields = dataclasses.fields(maker) if is_method(maker) else ()
    data = {field.name for field in fields if not field.compare}
    for field in inspect.signature(maker).parameters.values():
        needed = field.name in settings or field.default is field.empty
        if needed and (field.name in data or is_tensors(hints.get(field.name))):
            raise ValueError(
                f"{name} takes tensors as {field.name}, which no flag can give: make it in Python "
                "and pass it as --recipe file.py:name"
            )
