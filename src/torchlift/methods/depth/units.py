"""Parts of a network that can be left out: blocks whose output has the shape of their input."""

import copy
import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.core.modules import is_frozen
from torchlift.flow.ops import Flow
from torchlift.flow.trace import chunks, flow
from torchlift.loss import call, evaluating, output
from torchlift.methods.depth.splice import remove_modules
from torchlift.methods.depth.spots import KINDS, spots


class Skip(nn.Module):
    """x ↦ x, whatever else is passed: a block that was left out of a list."""

    def forward(self, x: Tensor, *_: Any, **__: Any) -> Tensor:
        """x."""
        return x


@dataclasses.dataclass(frozen=True)
class Unit:
    """Modules that go together: a block, or a layer with its norm and activation."""

    members: tuple[str, ...]

    @property
    def name(self) -> str:
        """The block's, or the layer's."""
        return self.members[0]


def removable_units(model: nn.Module, x: Any) -> list[Unit]:
    """What can be left out: items of sequences and lists, square layers of sequences; tried one by one."""
    example = next(chunks(x, 4))
    shape = flow(model, example)
    candidates = [Unit((name,)) for name in sequence_items(model, shape)]
    inside = tuple(f"{unit.name}." for unit in candidates)
    candidates += [
        unit for unit in square_layers(model, shape) if not unit.name.startswith(inside or ("\0",))
    ]
    candidates = [
        unit for unit in candidates if not any(is_frozen(model.get_submodule(name)) for name in unit.members)
    ]
    return [unit for unit in candidates if works(without_unit(model, unit), model, example)]


def sequence_items(model: nn.Module, shape: Flow) -> list[str]:
    """Items of a Sequential or ModuleList that hold a layer and something that bends."""
    members = dict(model.named_modules())
    names: list[str] = []
    for name, module in members.items():
        parent = members.get(name.rpartition(".")[0])
        ops = [op.kind for op in shape.ops if op.name == name or op.name.startswith(f"{name}.")]
        whole = isinstance(parent, nn.Sequential | nn.ModuleList) and any(True for _ in module.children())
        if name and whole and "layer" in ops and "activation" in ops:
            names.append(name)
    return [name for name in names if not any(name.startswith(f"{other}.") for other in names)]


def square_layers(model: nn.Module, shape: Flow) -> list[Unit]:
    """Layers of a sequence with as many outputs as inputs, with their norms and activations."""
    layers: list[Unit] = []
    for spot in spots(model, shape):
        weight = model.get_submodule(spot.layer).get_parameter("weight")
        parent = model.get_submodule(spot.layer.rpartition(".")[0])
        if spot.bend is not None and weight.shape[0] == weight.shape[1] and isinstance(parent, nn.Sequential):
            layers.append(Unit((spot.layer, *spot.norms, spot.bend.name)))
    return layers


def without_unit(model: nn.Module, unit: Unit) -> nn.Module:
    """A copy of the model without the unit."""
    small = copy.deepcopy(model)
    if isinstance(small.get_submodule(unit.name), KINDS):
        remove_modules(small, unit.members)
        return small
    above, _, last = unit.name.rpartition(".")
    if isinstance(small.get_submodule(above), nn.Sequential):
        remove_modules(small, unit.members)
    else:
        small.get_submodule(above).set_submodule(last, Skip())
    return small


def works(small: nn.Module, model: nn.Module, x: Any) -> bool:
    """Whether a model still runs and gives outputs of the same shape."""
    try:
        with evaluating(model), torch.no_grad():
            return output(call(small.eval(), x)).shape == output(call(model, x)).shape
    except (AttributeError, TypeError, RuntimeError, ValueError):
        return False


def ends(model: nn.Module, unit: Unit, x: Any) -> tuple[Tensor, Tensor]:
    """What a unit takes and gives on the inputs, samples as rows."""
    inputs, outputs = list[Tensor](), list[Tensor]()

    def enter(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        inputs.append(next(leaf for leaf in (*args, *kwargs.values()) if isinstance(leaf, Tensor)).flatten(1))

    def leave(_: nn.Module, __: Any, result: Any) -> None:
        outputs.append(output(result).flatten(1))

    first, last = model.get_submodule(unit.members[0]), model.get_submodule(unit.members[-1])
    hooks = [first.register_forward_pre_hook(enter, with_kwargs=True), last.register_forward_hook(leave)]
    try:
        with evaluating(model), torch.no_grad():
            for piece in chunks(x):
                call(model, piece)
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat(inputs), torch.cat(outputs)
