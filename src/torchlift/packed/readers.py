"""A module tree again from data and decoded tensors, without running anyone's constructor."""

import re
from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn

from torchlift.packed import classes
from torchlift.packed.budget import Budget, PackedError
from torchlift.packed.elements import DTYPES
from torchlift.packed.trees import INTERNAL, NEXT

MODULE = 8192
"""What an empty module takes, about."""
PATHS, DEPTH = 100_000, 200
"""torch walks a tree along every path to a shared module: the most paths, and the longest, that a file may
have."""
DEVICE = re.compile(r"(cpu|cuda|mps|xpu|meta)(:\d{1,2})?")
ATTENTION = (None, "eager", "sdpa")


class Reader:
    """Builds the tree; shared modules and tensors are shared again."""

    def __init__(self, tensors: list[Tensor], given: Iterable[classes.Kind], budget: Budget) -> None:
        self.tensors, self.given, self.budget = tensors, list(given), budget
        self.parameters: dict[tuple[int, bool], nn.Parameter] = {}
        self.modules: list[nn.Module] = []
        self.paths: dict[int, int] = {}
        self.depth, self.next = 0, 0

    def tensor(self, number: Any) -> Tensor:
        """A tensor by number."""
        return self.tensors[self.number(number)]

    def number(self, number: Any) -> int:
        """A tensor's number, if there is one."""
        if number == NEXT:
            number, self.next = self.next, self.next + 1
        if type(number) is not int or not 0 <= number < len(self.tensors):
            raise PackedError(f"there is no tensor {number!r}.")
        return number

    def module(self, tree: Any) -> nn.Module:
        """A module and all below it."""
        if "same_as" in tree:
            return self.shared(tree["same_as"])
        kind = classes.find(tree["class"], self.given)
        self.budget.take(MODULE, "a module")
        module = kind.__new__(kind)
        nn.Module.__init__(module)
        number = len(self.modules)
        self.modules.append(module)
        self.depth += 1
        if self.depth > DEPTH:
            raise PackedError(f"modules lie more than {DEPTH} deep in each other.")
        module.__dict__.update({attribute(key): self.value(value) for key, value in tree["plain"].items()})
        module.training = False
        self.fill(module, tree)
        self.paths[number] = 1 + sum(self.child(module, key, part) for key, part in tree["children"].items())
        if self.paths[number] > PATHS:
            raise PackedError(f"shared modules make more than {PATHS} paths through the tree.")
        self.depth -= 1
        return module

    def shared(self, number: Any) -> nn.Module:
        """A module that stood earlier."""
        if type(number) is not int or not 0 <= number < len(self.modules):
            raise PackedError(f"there is no module {number!r}.")
        return self.modules[number]

    def child(self, module: nn.Module, key: str, tree: Any) -> int:
        """Put a module under another; the number of paths that this makes."""
        if tree is None:
            module.add_module(key, None)
            return 0
        number = tree.get("same_as", len(self.modules))
        module.add_module(key, self.module(tree))
        if number not in self.paths:
            raise PackedError("a module lies inside itself.")
        return self.paths[number]

    def fill(self, module: nn.Module, tree: Any) -> None:
        """A module's own tensors."""
        for key, held in tree["parameters"].items():
            module.register_parameter(key, None if held is None else self.parameter(*held))
        for key, held in tree["buffers"].items():
            tensor = None if held is None else self.tensor(held[0])
            module.register_buffer(key, tensor, persistent=bool(held is None or held[1]))

    def parameter(self, number: Any, trained: bool) -> nn.Parameter:
        """A parameter; one number is one parameter, however many layers use it."""
        number, trained = self.number(number), bool(trained)
        tensor = self.tensors[number]
        if (number, trained) not in self.parameters:
            learns = trained and (tensor.is_floating_point() or tensor.is_complex())
            self.parameters[number, trained] = nn.Parameter(tensor, learns)
        return self.parameters[number, trained]

    def value(self, value: Any) -> Any:
        """An attribute again."""
        if isinstance(value, list):
            return [self.value(part) for part in value]
        if not isinstance(value, dict):
            return value
        (kind, held), *rest = cast("dict[str, Any]", value).items()
        if kind == "config" and len(rest) == 1:
            return configured(held, self.value(rest[0][1]))
        makers = {
            "float": float,
            "tuple": lambda parts: tuple(self.value(part) for part in parts),
            "set": lambda parts: {self.value(part) for part in parts},
            "dict": lambda pairs: {self.value(k): self.value(v) for k, v in pairs},
            "dtype": lambda name: DTYPES[name],
            "device": device,
            "tensor": self.tensor,
            "module": self.module,
            "function": classes.function,
        }
        if kind not in makers or rest:
            raise PackedError(f"an attribute of kind {kind!r} is not known.")
        return makers[kind](held)


def attribute(key: Any) -> str:
    """An attribute's name that is one."""
    if not isinstance(key, str) or not key.isidentifier() or key in INTERNAL or key.startswith("__"):
        raise PackedError(f"{key!r} is no attribute.")
    return key


def device(name: Any) -> torch.device:
    """A device of this machine by name."""
    if not isinstance(name, str) or not DEVICE.fullmatch(name):
        raise PackedError(f"{name!r} is no device.")
    return torch.device(name)


def configured(path: Any, values: Any) -> Any:
    """A configuration of transformers from its values; attention may not name code to be fetched."""
    if not isinstance(values, dict) or not plain_attention(values):
        raise PackedError("a configuration asks for attention that is neither eager nor sdpa.")
    return classes.configuration(path).from_dict(values)


def plain_attention(values: Any) -> bool:
    """Whether no part of a configuration names a kernel of somebody else's."""
    if isinstance(values, list | tuple):
        return all(plain_attention(part) for part in values)
    if not isinstance(values, dict):
        return True
    return all(
        value in ATTENTION if "attn_implementation" in str(key) else plain_attention(value)
        for key, value in cast("dict[Any, Any]", values).items()
    )
