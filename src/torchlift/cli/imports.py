"""Objects by ``package.module:name`` or ``file.py:name``, and calls with named arguments."""

import functools
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from torchlift.cli.pairs import unknown_name


def import_object(what: str, spec: str) -> Any:
    """The object a spec names; modules are looked for in the current folder too."""
    home, _, path = spec.partition(":")
    module = from_file(what, Path(home)) if home.endswith(".py") else from_package(what, home)
    value: Any = module
    for name in path.split("."):
        if not hasattr(value, name):
            names = [n for n, v in vars(value).items() if callable(v) and not n.startswith("_")]
            raise unknown_name(f"{what} {spec!r}: in {home}, name", name, names)
        value = getattr(value, name)
    return value


def from_package(what: str, name: str) -> ModuleType:
    """An importable module."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise ValueError(
                f"{what}: no module {error.name!r} here or among the installed packages; "
                "it reads package.module:name or file.py:name"
            ) from error
        raise ValueError(f"{what}: importing {name} failed: {error}") from error
    except Exception as error:  # a user's module may raise anything
        raise ValueError(f"{what}: importing {name} failed: {type(error).__name__}: {error}") from error


def from_file(what: str, path: Path) -> ModuleType:
    """A Python file as a module; read once, and found again by worker processes and pickles."""
    name = path.stem
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path.resolve()):
        return loaded
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if not path.is_file() or spec is None or spec.loader is None:
        raise ValueError(f"{what}: there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # a user's module may raise anything
        del sys.modules[name]
        raise ValueError(f"{what}: running {path} failed: {type(error).__name__}: {error}") from error
    return module


def check_keywords(who: str, function: Callable[..., Any], settings: Mapping[str, Any]) -> None:
    """Keywords the function takes, or an error with near matches."""
    accepted = keywords(function)
    for name in settings:
        if accepted is not None and name not in accepted:
            raise unknown_name(f"{who}: option", name, accepted)


def keywords(function: Callable[..., Any]) -> list[str] | None:
    """The names a function can be called with; None if it takes any."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    bound = set(function.keywords) if isinstance(function, functools.partial) else set[str]()
    usable = (p for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD))
    return [p.name for p in usable if p.name not in bound]
