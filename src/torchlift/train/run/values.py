"""Settings as TOML and back: a recipe is a table of its fields, an optimizer a table of its options.

``{class, fields}`` a dataclass · ``{class, arguments}`` a stopping rule · ``{call, arguments, options}`` a
partial · ``{import}`` a named class or function, with a digest of its ``code`` where it is the user's ·
``{none}`` · ``{list}`` · ``{dict}`` · and ``{opaque, digest}`` for what cannot be written as a value.
Arrays are tuples. Reading back imports only our methods, torch's optimizers and what the caller allows.
"""

import dataclasses
import functools
import importlib
import operator
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import torch
from torch import Tensor

from torchlift.errors import CheckpointError
from torchlift.train.run.digest import digest, from_library, qualified_name
from torchlift.train.until import Rule

PlainValue = Any
"""What TOML can hold: numbers, words, arrays, tables."""

KINDS = ("class", "call", "import", "opaque", "none", "list", "dict")
TRUSTED = (
    "torchlift.methods",
    "torchlift.experiments.best_of",
    "torchlift.optim",
    "torchlift.train",
    "torchlift.data",
    "torch.optim",
    "torch.nn.functional",
)
"""Where names may lead that a record gives: a folder from elsewhere cannot make us run what it likes."""


def as_toml_value(value: Any) -> PlainValue:
    """A setting as TOML can hold it."""
    if value is None:
        return {"none": True}
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return [as_toml_value(item) for item in value]
    if isinstance(value, list):
        return {"list": [as_toml_value(item) for item in value]}
    if isinstance(value, Mapping):
        return encode_mapping(value)
    if isinstance(value, functools.partial):
        options = {name: as_toml_value(item) for name, item in value.keywords.items()}
        return {
            "call": as_toml_value(value.func),
            "arguments": as_toml_value(tuple(value.args)),
            "options": options,
        }
    if isinstance(value, Rule):
        return {
            "class": qualified_name(type(value)),
            "arguments": as_toml_value(tuple(value.settings().values())),
        }
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            field.name: as_toml_value(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
        return {"class": qualified_name(type(value)), "fields": fields} | code_of(type(value))
    if isinstance(value, torch.dtype):
        return {"import": str(value).replace(".", ":", 1)}
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType) and importable(value):
        return {"import": qualified_name(value)} | code_of(value)
    return {"opaque": f"{kind_words(value)}, which cannot be written as a value", "digest": digest(value)}


def encode_mapping(value: Mapping[Any, Any]) -> PlainValue:
    """A table where the keys are words, else a list of pairs."""
    if all(isinstance(key, str) and key not in KINDS for key in value):
        return {key: as_toml_value(item) for key, item in value.items()}
    return {"dict": [[as_toml_value(key), as_toml_value(item)] for key, item in value.items()]}


def code_of(value: Any) -> dict[str, str]:
    """A digest of the code of a class or function that is the user's: it may change under its name."""
    if from_library(value):
        return {}
    return {"code": digest(vars(value).get("__call__") if isinstance(value, type) else value)}


def importable(value: Any) -> bool:
    """Whether the name of a class or function leads back to it."""
    try:
        return find(qualified_name(value)) is value
    except (ImportError, AttributeError, ValueError):
        return False


def kind_words(value: Any) -> str:
    """What kind of thing it is, without addresses."""
    if isinstance(value, Tensor):
        return f"a {value.dtype} tensor of shape {tuple(value.shape)}"
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{'' if named is value else 'an instance of '}{qualified_name(named)}"


def find(name: str) -> Any:
    """What ``module:qualified.name`` names."""
    module, _, path = name.partition(":")
    return operator.attrgetter(path)(importlib.import_module(module))


def decode(value: PlainValue, allow: Iterable[str] = ()) -> Any:
    """The setting that :func:`as_toml_value` wrote; ``allow``: packages of the user that may be imported."""
    recurse = functools.partial(decode, allow=tuple(allow))
    if isinstance(value, list):
        return tuple(recurse(item) for item in value)
    if not isinstance(value, dict):
        return value
    kind = next((kind for kind in KINDS if kind in value), None)
    if kind is None:
        return {key: recurse(item) for key, item in value.items()}
    if kind == "opaque":
        raise CheckpointError(f"{value['opaque']}: pass it yourself.")
    if kind == "class":
        fields = {name: recurse(item) for name, item in value.get("fields", {}).items()}
        return load_class(value["class"], allow)(*recurse(value.get("arguments", [])), **fields)
    if kind == "call":
        options = {name: recurse(item) for name, item in value["options"].items()}
        return functools.partial(recurse(value["call"]), *recurse(value["arguments"]), **options)
    readers: dict[str, Callable[[], Any]] = {
        "none": lambda: None,
        "list": lambda: list(recurse(value["list"])),
        "dict": lambda: dict(recurse(value["dict"])),
        "import": lambda: load_named(value["import"], allow),
    }
    return readers[kind]()


def load_named(name: str, allow: Iterable[str]) -> Any:
    """A class, function or dtype by name, from packages that are trusted, defined where the name says."""
    module = name.partition(":")[0]
    if module == "torch" and isinstance(value := getattr(torch, name.partition(":")[2], None), torch.dtype):
        return value
    if not any(f"{module}.".startswith(f"{package}.") for package in (*TRUSTED, *allow)):
        package = module.partition(".")[0]
        raise CheckpointError(
            f"{name} is not a method of torchlift's or torch's: allow=({package!r},) imports it."
        )
    try:
        value = find(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise CheckpointError(f"{name} is not there ({error}).") from error
    if not isinstance(value, type | types.FunctionType) or qualified_name(cast(Any, value)) != name:
        raise CheckpointError(f"{name} is not a class or function of that module.")
    return value


def load_class(name: str, allow: Iterable[str]) -> Any:
    """A dataclass or a stopping rule by name."""
    kind = load_named(name, allow)
    if not (isinstance(kind, type) and (dataclasses.is_dataclass(kind) or issubclass(kind, Rule))):
        raise CheckpointError(f"{name} is neither a dataclass nor a stopping rule.")
    return kind
