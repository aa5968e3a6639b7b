"""A module tree as plain data, and back without running anyone's constructor.

Each module is its class by name, its plain attributes, and the numbers of its tensors. Classes come from
torch.nn, torchlift and transformers, from those the caller hands in, or from those alive in this process;
nothing is imported on a file's word beyond these packages, and no code is stored.
"""

import importlib
import math
import types
from collections.abc import Iterable, Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn

from torchlift.deploy.codecs import DTYPES, PackedError
from torchlift.errors import TorchliftError

TRUSTED = ("torch.nn", "torchlift", "transformers")
FUNCTIONS = ("torch.nn.functional", "torch._C._nn", "torch")
INTERNAL = frozenset({*vars(nn.Module()), "_flat_weights", "_flat_weight_refs"}) - {"training"}

Tree = dict[str, Any]


class Writer:
    """Collects tensors while a tree is described; shared ones stand once."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.numbers: dict[int, int] = {}
        self.modules: dict[int, int] = {}

    def tensor(self, tensor: Tensor) -> int:
        """The number of a tensor."""
        if id(tensor) not in self.numbers:
            self.numbers[id(tensor)] = len(self.tensors)
            self.tensors.append(tensor)
        return self.numbers[id(tensor)]

    def module(self, module: nn.Module, name: str = "") -> Tree:
        """A module and all below it."""
        if id(module) in self.modules:
            return {"same_as": self.modules[id(module)]}
        self.modules[id(module)] = len(self.modules)
        kind, held = type(module), vars(module)
        return {
            "class": f"{kind.__module__}:{kind.__qualname__}",
            "plain": {
                key: self.value(value, f"{name}.{key}") for key, value in held.items() if key not in INTERNAL
            },
            "parameters": {
                key: None if p is None else [self.tensor(p), p.requires_grad]
                for key, p in held["_parameters"].items()
            },
            "buffers": {
                key: None if b is None else [self.tensor(b), key not in held["_non_persistent_buffers_set"]]
                for key, b in held["_buffers"].items()
            },
            "children": {
                key: None if child is None else self.module(child, f"{name}.{key}")
                for key, child in held["_modules"].items()
            },
        }

    def value(self, value: Any, name: str) -> Any:
        """An attribute as data; what has no such form is named in the error."""
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, list):
            return [self.value(part, name) for part in value]
        if isinstance(value, tuple):
            return {"tuple": [self.value(part, name) for part in value]}
        if isinstance(value, dict):
            return {"dict": [[self.value(k, name), self.value(v, name)] for k, v in value.items()]}
        if isinstance(value, set | frozenset):
            return {"set": sorted(self.value(part, name) for part in value)}
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        if isinstance(value, torch.device):
            return {"device": str(value)}
        if isinstance(value, Tensor):
            return {"tensor": self.tensor(value)}
        if isinstance(value, nn.Module):
            return {"module": self.module(value, name)}
        found = getattr(value, "__module__", None)
        if isinstance(value, types.FunctionType | types.BuiltinFunctionType) and found in FUNCTIONS:
            return {"function": f"{found}:{value.__name__}"}
        if is_config(type(value)):
            return self.config(value, name)
        raise TorchliftError(
            f"save: attribute {name.lstrip('.')} ({type(value).__name__}) has no plain form; "
            "save(model, path, example=x) stores the graph instead of the attributes."
        )

    def config(self, value: Any, name: str) -> Any:
        """A configuration of transformers as data."""
        values = {**value.to_dict(), "attn_implementation": value._attn_implementation}
        kind = type(value)
        return {"config": f"{kind.__module__}:{kind.__qualname__}", "values": self.value(values, name)}


def is_config(kind: type) -> bool:
    """Whether a class is a configuration of transformers (plain data with ``to_dict`` and ``from_dict``)."""
    return any(
        base.__module__.startswith("transformers.") and base.__name__.endswith("Config")
        for base in kind.__mro__
    )


class Reader:
    """Builds a tree again from data and decoded tensors."""

    def __init__(self, tensors: list[Tensor], classes: Iterable[type[nn.Module]]) -> None:
        self.tensors = tensors
        self.parameters: dict[int, nn.Parameter] = {}
        self.modules: list[nn.Module] = []
        self.classes = {f"{kind.__module__}:{kind.__qualname__}": kind for kind in classes}

    def tensor(self, number: Any) -> Tensor:
        """A tensor by number."""
        if type(number) is not int or not 0 <= number < len(self.tensors):
            raise PackedError(f"there is no tensor {number!r}.")
        return self.tensors[number]

    def module(self, tree: Any) -> nn.Module:
        """A module and all below it."""
        if "same_as" in tree:
            return self.modules[tree["same_as"]]
        module = self.find(tree["class"]).__new__(self.find(tree["class"]))
        nn.Module.__init__(module)
        self.modules.append(module)
        module.__dict__.update({name_of(key): self.value(value) for key, value in tree["plain"].items()})
        for key, held in tree["parameters"].items():
            module.register_parameter(key, None if held is None else self.parameter(*held))
        for key, held in tree["buffers"].items():
            module.register_buffer(
                key, None if held is None else self.tensor(held[0]), persistent=bool(held is None or held[1])
            )
        for key, child in tree["children"].items():
            module.add_module(key, None if child is None else self.module(child))
        return module

    def parameter(self, number: Any, trained: bool) -> nn.Parameter:
        """A parameter; one number is one parameter, however many layers use it."""
        tensor = self.tensor(number)
        if number not in self.parameters:
            self.parameters[number] = nn.Parameter(tensor, bool(trained) and tensor.is_floating_point())
        return self.parameters[number]

    def value(self, value: Any) -> Any:
        """An attribute again."""
        if isinstance(value, list):
            return [self.value(part) for part in value]
        if not isinstance(value, dict):
            return value
        (kind, held), *rest = value.items()
        if kind == "float":
            return float(held)
        if kind == "tuple":
            return tuple(self.value(part) for part in held)
        if kind == "set":
            return {self.value(part) for part in held}
        if kind == "dict":
            return {self.value(k): self.value(v) for k, v in held}
        if kind == "dtype" and held in DTYPES:
            return DTYPES[held]
        if kind == "device":
            return torch.device(held)
        if kind == "tensor":
            return self.tensor(held)
        if kind == "module":
            return self.module(held)
        if kind == "function":
            return function(held)
        if kind == "config" and len(rest) == 1:
            return self.config(held, self.value(rest[0][1]))
        raise PackedError(f"an attribute of kind {kind!r} is not known.")

    def config(self, path: str, values: Any) -> Any:
        """A configuration of transformers from its values."""
        kind = attribute(path, ("transformers",))
        if not (isinstance(kind, type) and is_config(kind)):
            raise PackedError(f"{path} is no configuration.")
        return cast(Any, kind).from_dict(values)

    def find(self, path: Any) -> type[nn.Module]:
        """A module class by name: handed in, of a trusted package, or alive in this process."""
        if not isinstance(path, str):
            raise PackedError("a class has no name.")
        kind = self.classes.get(path) or attribute(path, TRUSTED) or alive(path)
        if kind is None:
            raise PackedError(
                f"class {path} is not known here: import it and pass load(path, classes=[...]), "
                "or save with example=x, which stores the graph and needs no class."
            )
        if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
            raise PackedError(f"{path} is no module class.")
        return kind


def name_of(key: Any) -> str:
    """An attribute's name that is one."""
    if not isinstance(key, str) or not key.isidentifier() or key in INTERNAL:
        raise PackedError(f"{key!r} is no attribute.")
    return key


def attribute(path: str, packages: tuple[str, ...]) -> Any:
    """``module:qualified.name`` if the module belongs to one of the packages; None otherwise."""
    module, _, names = path.partition(":")
    if not any(module == package or module.startswith(f"{package}.") for package in packages):
        return None
    try:
        found: Any = importlib.import_module(module)
        for name in names.split("."):
            found = vars(found)[name]
    except (ImportError, KeyError, TypeError):
        return None
    return found


def function(path: str) -> Any:
    """A function of torch.nn.functional, or an activation of torch itself."""
    module, _, name = path.partition(":")
    found = vars(importlib.import_module(module)).get(name) if module in FUNCTIONS else None
    allowed = module != "torch" or name in ("relu", "sigmoid", "tanh", "softmax")
    if found is None or not allowed or not isinstance(found, types.FunctionType | types.BuiltinFunctionType):
        raise PackedError(f"function {path} is not allowed.")
    return found


def alive(path: str) -> type[nn.Module] | None:
    """A module class that exists in this process already: nothing is imported for it."""
    return next(
        (kind for kind in subclasses(nn.Module) if f"{kind.__module__}:{kind.__qualname__}" == path), None
    )


def subclasses(kind: type[nn.Module]) -> Iterator[type[nn.Module]]:
    """All classes below one, newest definitions last."""
    for child in kind.__subclasses__():
        yield child
        yield from subclasses(child)
