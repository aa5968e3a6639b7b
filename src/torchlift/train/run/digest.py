"""A digest of anything a user may hand over: equal today and tomorrow, different where behavior may differ.

Tensors and arrays by dtype, shape and bytes; functions by their bytecode, defaults, closures and the plain
globals they read; modules by their tree and state; other objects by their type, the code of their class, and
their attributes: all public ones, and those private ones that are plain data. Code of an installed package
counts by its name and version. What has no stable content (files, generators, locks) counts by its type
alone, and is named to :func:`noting_opaque`.
"""

import contextlib
import contextvars
import dataclasses
import functools
import hashlib
import sys
import sysconfig
import types
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from torchlift.train.checkpoint import content

PLAIN = (type(None), bool, int, float, complex, str, bytes)
NAMED = (torch.dtype, torch.device, torch.Size, types.ModuleType)
DEEPEST = 100
"""Objects inside objects; what is deeper counts by its type."""
OPAQUE: contextvars.ContextVar[set[str] | None] = contextvars.ContextVar("opaque", default=None)
LIBRARIES = {"torch", "torchlift", "numpy", *sys.stdlib_module_names}


def digest(*values: Any) -> str:
    """A short name for what the values are."""
    total = Digest()
    for value in values:
        total.add(value)
    return total.hash.hexdigest()


def from_library(value: Any) -> bool:
    """Whether a class or function belongs to a package whose version the record names."""
    module = getattr(value, "__module__", None) or "builtins"
    return module.partition(".")[0] in LIBRARIES and module != "__main__"


def release_of(value: Any) -> str | None:
    """``package version`` of a class or function of an installed package, whose code is fixed."""
    return package_release((getattr(value, "__module__", None) or "builtins").partition(".")[0])


@functools.cache
def package_release(package: str) -> str | None:
    """The package with its version, if it lies where packages are installed and says which it is."""
    module = sys.modules.get(package)
    file, version = (getattr(module, name, None) for name in ("__file__", "__version__"))
    homes = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    installed = file is not None and any(Path(file).is_relative_to(home) for home in homes)
    return f"{package} {version}" if installed and isinstance(version, str) else None


def qualified_name(value: Any) -> str:
    """``module:qualified.name`` of a class or function."""
    return f"{getattr(value, '__module__', None) or 'builtins'}:{getattr(value, '__qualname__', value)}"


class Digest:
    """One pass over a value; what was met before is a reference, so that cycles end."""

    def __init__(self) -> None:
        self.hash = hashlib.blake2b(digest_size=16)
        self.seen: dict[int, tuple[int, Any]] = {}
        self.depth = 0

    def update(self, *words: object) -> None:
        """Add words."""
        self.hash.update(repr(words).encode())

    def add(self, value: Any) -> None:
        """Add a value of any kind."""
        if isinstance(value, PLAIN):
            self.update(type(value).__name__, value)
        elif isinstance(value, NAMED):
            self.update(type(value).__name__, str(getattr(value, "__name__", value)))
        elif isinstance(value, Tensor):
            self.update("tensor", str(value.dtype), str(value.layout), tuple(value.shape))
            self.hash.update(content(value if value.layout == torch.strided else value.to_dense()))
        elif id(value) in self.seen:
            self.update("again", self.seen[id(value)][0])
        elif self.depth > DEEPEST:
            self.update("deep", qualified_name(type(value)))
            note_opaque(type(value))
        else:
            self.seen[id(value)] = (len(self.seen), value)
            self.depth += 1
            self.add_object(value)
            self.depth -= 1

    def add_object(self, value: Any) -> None:
        """Add what may hold other values."""
        if isinstance(value, np.ndarray) and value.dtype != object:
            self.update("array", str(value.dtype), value.shape)
            self.hash.update(np.ascontiguousarray(value).tobytes())
        elif isinstance(value, Mapping):
            self.add_all("mapping", [member for pair in value.items() for member in pair])
        elif isinstance(value, list | tuple | np.ndarray):
            self.add_all(type(value).__name__, value)
        elif isinstance(value, set | frozenset):
            self.update("set", sorted(digest(member) for member in value))
        elif isinstance(value, functools.partial):
            self.add_all("partial", (value.func, value.args, value.keywords))
        elif isinstance(value, types.MethodType):
            self.add_all("method", (value.__func__, value.__self__))
        elif isinstance(value, types.FunctionType):
            self.add_function(value)
        elif isinstance(value, type | types.BuiltinFunctionType):
            self.update("named", qualified_name(value))
        elif isinstance(value, nn.Module):
            self.update("module", qualified_name(type(value)), value.extra_repr())
            self.add(public(value))
            self.add(
                {**dict(value.named_parameters(recurse=False)), **dict(value.named_buffers(recurse=False))}
            )
            self.add(dict(value.named_children()))
        else:
            self.add_instance(value)

    def add_all(self, kind: str, members: Any) -> None:
        """Add a container."""
        self.update(kind, len(members))
        for member in members:
            self.add(member)

    def add_function(self, function: types.FunctionType) -> None:
        """What a function does: a library's by its name, any other's by its code and all it closes over."""
        if from_library(function) and "<" not in function.__qualname__:
            self.update("named", qualified_name(function))
            return
        if release_of(function) is not None and "<" not in function.__qualname__:
            self.update("installed", qualified_name(function), release_of(function))
            return
        self.update("function")
        self.add_code(function.__code__)
        self.add_all("defaults", (function.__defaults__, function.__kwdefaults__))
        self.add_all("closure", [closure_value(cell) for cell in function.__closure__ or ()])
        for name in sorted(names_in(function.__code__) & function.__globals__.keys()):
            value = function.__globals__[name]
            if isinstance(value, (*PLAIN, types.FunctionType)):
                self.update("global", name)
                self.add(value)

    def add_code(self, code: types.CodeType) -> None:
        """Bytecode and constants, without names of files or numbers of lines."""
        self.update("code", code.co_code, code.co_names, code.co_varnames, code.co_freevars)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self.add_code(constant)
            elif isinstance(constant, frozenset):
                self.update("set", sorted(map(repr, constant)))  # in no order of its own
            else:
                self.update(repr(constant))

    def add_instance(self, value: Any) -> None:
        """An object: its type, the code of its call, its fields or public attributes."""
        kind = type(value)
        self.update("object", qualified_name(kind))
        self.add_class(kind)
        if dataclasses.is_dataclass(value):
            self.add_all("fields", [getattr(value, field.name) for field in dataclasses.fields(value)])
        elif hasattr(value, "__dict__"):
            self.add(attributes(value))
        else:
            note_opaque(kind)

    def add_class(self, kind: type) -> None:
        """The functions and plain values of a class of the user's, and of the classes it is made from."""
        for base in kind.__mro__:
            if from_library(base) or base is object:
                continue
            if release_of(base) is not None:
                self.update("installed", qualified_name(base), release_of(base))
                continue
            for name, member in sorted(vars(base).items()):
                function = getattr(member, "__func__", getattr(member, "fget", member))
                if (
                    isinstance(function, (*PLAIN, types.FunctionType)) and not name.startswith("__")
                ) or name in ("__call__", "__getitem__", "__getitems__", "__iter__", "__len__"):
                    self.update("member", name)
                    self.add(function)


def attributes(value: Any) -> dict[str, Any]:
    """An object's own attributes: the public ones, and the private ones that are plain data.

    Caches and handles are private, and change while a run goes on; numbers, words and tensors are settings.
    """
    private = {k: v for k, v in vars(value).items() if k.startswith("_") and is_data(v)}
    internal = vars(nn.Module()).keys() if isinstance(value, nn.Module) else ()
    return public(value) | {k: v for k, v in sorted(private.items()) if k not in internal}


def is_data(value: Any) -> bool:
    """A number, a word, a tensor, an array, or a list or tuple of these."""
    if isinstance(value, list | tuple):
        return all(is_data(member) for member in value)
    return isinstance(value, (*PLAIN, Tensor)) or (isinstance(value, np.ndarray) and value.dtype != object)


def note_opaque(kind: type) -> None:
    """Say that something counts by its type alone."""
    noted = OPAQUE.get()
    if noted is not None:
        noted.add(qualified_name(kind))


@contextlib.contextmanager
def noting_opaque() -> Generator[set[str]]:
    """The types of what counts by its type alone in this stretch of code."""
    noted: set[str] = set()
    token = OPAQUE.set(noted)
    try:
        yield noted
    finally:
        OPAQUE.reset(token)


def public(value: Any) -> dict[str, Any]:
    """An object's own attributes, without private ones and a module's mode."""
    hidden = {"training"} if isinstance(value, nn.Module) else set[str]()
    return {k: v for k, v in sorted(vars(value).items()) if not k.startswith("_") and k not in hidden}


def names_in(code: types.CodeType) -> set[str]:
    """The globals that a function and those inside it may read."""
    inner = [names_in(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return set(code.co_names).union(*inner)


def closure_value(cell: types.CellType) -> Any:
    """What a closure holds, if it has been filled."""
    try:
        return cell.cell_contents
    except ValueError:
        return None
