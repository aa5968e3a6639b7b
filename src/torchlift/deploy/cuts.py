"""Cutting channels out of tensors, layers and optimiser state. Nothing here decides what to cut."""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from torchlift.deploy.couplings import CONV, NORM, TRANSPOSED, Member

Cuts = dict[tuple[str, int], Tensor]
"""What goes: (name of a parameter or buffer, dimension) → sorted indices."""


def cuts_of(model: nn.Module, member: Member, dead: Tensor) -> Cuts:
    """The cuts in one layer when the channels ``dead`` (Boolean, by root) of its coupling go."""
    index = member.index[dead[member.root]]
    layer = model.get_submodule(member.layer)
    cuts: Cuts = {}
    for name, tensor in [*layer.named_parameters(recurse=False), *layer.named_buffers(recurse=False)]:
        if tensor.ndim:
            dim = dimension(layer, name, member.role)
            if dim is not None and tensor.shape[dim] > 1:
                cuts[f"{member.layer}.{name}", dim] = index
    return cuts


def dimension(layer: nn.Module, name: str, role: str) -> int | None:
    """The dimension of a layer's tensor that holds the channels it writes, reads or passes."""
    if role == "reads":
        return None if name != "weight" else (0 if isinstance(layer, TRANSPOSED) else 1)
    if isinstance(layer, (*TRANSPOSED, nn.Embedding)) and name == "weight" and role == "writes":
        return 1
    return 0


def merged(cuts: list[Cuts]) -> Cuts:
    """All cuts together; a dimension cut by several couplings (a concatenation) loses the union."""
    total: Cuts = {}
    for part in cuts:
        for place, index in part.items():
            known = total.get(place)
            total[place] = index.unique() if known is None else torch.cat([known, index]).unique()
    return {place: index for place, index in total.items() if len(index)}


def without(tensor: Tensor, dim: int, index: Tensor) -> Tensor:
    """The tensor less some slices of a dimension."""
    keep = torch.ones(tensor.shape[dim], dtype=torch.bool)
    keep[index] = False
    return tensor.index_select(dim, keep.nonzero().flatten().to(tensor.device))


def cut(model: nn.Module, cuts: Cuts) -> nn.Module:
    """A copy of the model with the slices cut out of its tensors, and its layers' sizes put right."""
    model = copy.deepcopy(model)
    for (name, dim), index in cuts.items():
        owner, _, leaf = name.rpartition(".")
        layer = model.get_submodule(owner)
        old = getattr(layer, leaf)
        new = without(old.detach(), dim, index).clone(memory_format=torch.contiguous_format)
        setattr(layer, leaf, nn.Parameter(new, old.requires_grad) if isinstance(old, nn.Parameter) else new)
    for module in model.modules():
        resize(module)
    return model


def resize(layer: nn.Module) -> None:
    """Make a layer's sizes those of its weight."""
    if isinstance(layer, (*CONV, *TRANSPOSED)):
        rows, columns = layer.weight.shape[:2]
        if layer.groups == layer.in_channels == layer.out_channels and layer.groups > 1:
            layer.groups = layer.in_channels = layer.out_channels = rows
        elif layer.groups == 1:
            layer.in_channels, layer.out_channels = (
                (rows, columns) if isinstance(layer, TRANSPOSED) else (columns, rows)
            )
    elif isinstance(layer, nn.Linear):
        layer.out_features, layer.in_features = layer.weight.shape
    elif isinstance(layer, nn.Embedding):
        layer.embedding_dim = layer.weight.shape[1]
    elif isinstance(layer, NORM):
        known = layer.weight if layer.affine else layer.running_mean
        if known is not None:
            layer.num_features = len(known)
    elif isinstance(layer, nn.PReLU):
        layer.num_parameters = layer.weight.numel()


def carry(optimizer: Optimizer, before: nn.Module, after: nn.Module, cuts: Cuts) -> None:
    """Point the optimiser at the parameters of the cut model, its state cut alike."""
    names = {parameter: name for name, parameter in before.named_parameters()}
    new = dict(after.named_parameters())
    for group in optimizer.param_groups:
        moved: list[nn.Parameter] = []
        for parameter in group["params"]:
            if parameter not in names:
                moved.append(parameter)
                continue
            name = names[parameter]
            moved.append(new[name])
            state = optimizer.state.pop(parameter, None)
            if state is not None:
                optimizer.state[new[name]] = cut_state(state, parameter, name, cuts)
        group["params"] = moved


def cut_state(state: Mapping[str, object], parameter: Tensor, name: str, cuts: Cuts) -> dict[str, object]:
    """One parameter's state with the tensors of its shape cut."""
    made: dict[str, object] = {}
    for key, value in state.items():
        if isinstance(value, Tensor) and value.shape == parameter.shape:
            for (owner, dim), index in cuts.items():
                if owner == name:
                    value = without(value, dim, index)
        made[key] = value
    return made
