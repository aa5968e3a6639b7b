# pyright: reportPrivateUsage=false
"""A module tree as data: kinds of the closed list, their arguments, their children; and the tree again.

    {"kind": "Sequential", "children": {"0": {"kind": "Linear", "args": {"in_features": 3, …}}}}

A module that stands in several places is described once; elsewhere ``{"same": n}`` is the n-th described.
"""

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from torchlift.packed.budget import Budget, PackedError
from torchlift.packed.layers import arguments_of, build, kind_name, layer_of, same_attribute

MODULE = 8192
"""What an empty module takes, about."""
CALLS, DEPTH = 20_000, 64
"""Module calls that a tree may make, shared ones every time, and how deep it may be."""
RECORDS = ("_step_of_", "_kept_of_")
HOOKS = (
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks",
    "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)  # fmt: skip
FORWARD = HOOKS[:2]
UNSEEN = frozenset(
    {"training", "_modules", "_parameters", "_buffers", "_non_persistent_buffers_set", "_flat_weights"}
    | {"_flat_weight_refs", "_compiled_call_impl", "_is_full_backward_hook"}
    | {"_is_hf_initialized", *HOOKS}
    | {f"{name}_with_kwargs" for name in HOOKS} | {f"{name}_always_called" for name in HOOKS}
)  # fmt: skip
ModuleTree = dict[str, Any]


class UnlistedError(Exception):
    """A module that a file cannot hold: why."""


class Guardian:
    """A hook of ours, which no file needs: loading puts it there."""


def hooks(module: nn.Module, kinds: tuple[str, ...] = HOOKS) -> list[str]:
    """The hooks of a module by their kind, ours aside."""
    return [
        name.strip("_").replace("_", " ").removesuffix("s")
        for name in kinds
        if any(not isinstance(hook, Guardian) for hook in getattr(module, name, {}).values())
    ]


class Describer:
    """Describes a tree, or says which module keeps it from being described."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}

    def describe(self, module: nn.Module, path: str = "") -> ModuleTree:
        """A module and all below it."""
        if id(module) in self.numbers:
            return {"same": self.numbers[id(module)]}
        where = f"{path or 'the model'} ({type(module).__name__})"
        name = kind_name(module)
        if name is None:
            raise UnlistedError(f"{where} is not one of the layers a file may hold")
        try:
            arguments = arguments_of(module, name)
            twin = build(name, arguments)
        except (PackedError, AttributeError, IndexError) as error:
            raise UnlistedError(f"{where}: {error}") from error
        container = layer_of(name).container
        check_described(module, twin, where, deep=not container)
        self.numbers[id(module)] = len(self.numbers)
        tree: ModuleTree = {"kind": name}
        if arguments:
            tree["args"] = arguments
        if container:
            children = module._modules
            if any(child is None for child in children.values()):
                raise UnlistedError(f"{where} has a child that is None")
            dot = f"{path}." if path else ""
            tree["children"] = {
                key: self.describe(child, f"{dot}{key}")
                for key, child in children.items()
                if child is not None
            }
        return tree


def check_described(module: nn.Module, twin: nn.Module, where: str, *, deep: bool) -> None:
    """Raise for a module that is not in all its attributes what its kind and arguments make."""
    if type(module) is not type(twin):
        raise UnlistedError(f"{where} has a {type(module).__name__} where there is a {type(twin).__name__}")
    if names := hooks(module):
        raise UnlistedError(f"{where} has a {names[0]}")
    own, expected = vars(module), vars(twin)
    for key in sorted(set(own) | set(expected)):
        if key in UNSEEN:
            continue
        if key not in own or key not in expected or not same_attribute(own[key], expected[key]):
            raise UnlistedError(f"{where} has an attribute {key!r} of its own")
    dtypes = set()
    for tensors, shapes in ((module._parameters, twin._parameters), (module._buffers, twin._buffers)):
        mine = {key: tensor for key, tensor in tensors.items() if not key.startswith(RECORDS)}
        if set(mine) != set(shapes):
            raise UnlistedError(f"{where} has other tensors than its kind")
        for key, tensor in mine.items():
            other = shapes[key]
            if (tensor is None) != (other is None) or (
                tensor is not None and other is not None and tensor.shape != other.shape
            ):
                raise UnlistedError(f"{where} has a {key} of another shape than its attributes say")
            if tensor is not None and type(tensor) not in (Tensor, nn.Parameter):
                raise UnlistedError(f"{where} has a {key} that is not a plain tensor")
            if tensor is not None and tensor.is_floating_point():
                dtypes.add(tensor.dtype)
            elif tensor is not None and other is not None and tensor.dtype != other.dtype:
                raise UnlistedError(f"{where} has a {key} of {tensor.dtype}")
    if len(dtypes) > 1:
        raise UnlistedError(f"{where} has tensors of several number types")
    if deep:
        if set(module._modules) != set(twin._modules):
            raise UnlistedError(f"{where} has children of its own")
        for key, child in module._modules.items():
            other = twin._modules[key]
            if child is not None and other is not None:
                check_described(child, other, f"{where}.{key}", deep=True)


class Builder:
    """Builds a tree without memory; shared modules are shared again."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.modules: list[nn.Module] = []
        self.calls: list[int] = []

    def build(self, tree: Any, depth: int = 0) -> tuple[nn.Module, int]:
        """A module and all below it, and how many calls one call of it makes."""
        if type(tree) is not dict or depth > DEPTH:
            raise PackedError(f"a module is not described as one, or lies more than {DEPTH} deep.")
        if set(tree) == {"same"}:
            number = tree["same"]
            if type(number) is not int or not 0 <= number < len(self.calls) or not self.calls[number]:
                raise PackedError(f"there is no earlier module {number!r:.40}.")
            return self.modules[number], self.calls[number]
        if not {"kind"} <= set(tree) <= {"kind", "args", "children"}:
            raise PackedError("a module is described by something else than kind, args and children.")
        self.budget.take(MODULE, "a module")
        module = build(tree["kind"], tree.get("args", {}))
        layer, number = layer_of(tree["kind"]), len(self.modules)
        self.modules.append(module)
        self.calls.append(0)
        children = tree.get("children", {})
        if type(children) is not dict or (children and not layer.container):
            raise PackedError(f"{tree['kind']} has no children of its own.")
        if layer.children and list(children) != list(layer.children):
            raise PackedError(f"{tree['kind']} has other children than {', '.join(layer.children)}.")
        calls = 1
        for key, child in children.items():
            if (
                not key
                or "." in key
                or key.startswith("_")
                or (key in dir(module) and key not in layer.children)
            ):
                raise PackedError(f"{key!r:.60} cannot be the name of a child.")
            below, more = self.build(child, depth + 1)
            module._modules[key] = below
            calls += more
            if calls > CALLS:
                raise PackedError(f"one call of the model would call more than {CALLS} modules.")
        for _ in module.modules() if not layer.container else ():
            self.budget.take(MODULE, "a module")
        self.calls[number] = calls
        return module, calls


def slots(model: nn.Module) -> Iterator[tuple[nn.Module, str, bool]]:
    """Every place of a tensor, module by module: the module, the name there, whether it is a parameter."""
    for module in model.modules():
        for name, tensor in module._parameters.items():
            if tensor is not None:
                yield module, name, True
        for name, tensor in module._buffers.items():
            if tensor is not None and not name.startswith(RECORDS):
                yield module, name, False
