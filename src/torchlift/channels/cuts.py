"""Cutting channels out of tensors, layers and optimizer state. Nothing here decides what to cut."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.optim import LBFGS, Adafactor, Optimizer

from torchlift.channels.copies import copied
from torchlift.channels.couplings import Coupling, Member
from torchlift.channels.follow.rules import SliceNormed
from torchlift.channels.resizing import CONV, TRANSPOSED, refit_attention, resize
from torchlift.core.stored import KEPT, STEP, full_rank, record_at
from torchlift.errors import TorchliftError

Cuts = dict[tuple[str, int], Tensor]
"""What goes: (name of a parameter or buffer, dimension) → sorted indices."""


def cuts_of(members: Iterable[Member], dead: Tensor) -> Cuts:
    """The cuts when the channels ``dead`` (Boolean) of a coupling go."""
    return {(m.name, m.dim): m.index[dead[m.channel]] for m in members}


def merged(cuts: Iterable[Cuts]) -> Cuts:
    """All cuts together; a dimension cut by several couplings (a concatenation) loses the union."""
    total: Cuts = {}
    for own in cuts:
        for dimension, index in own.items():
            before = total.get(dimension)
            total[dimension] = index if before is None else torch.cat([before, index]).unique()
    return {dimension: index for dimension, index in total.items() if len(index)}


@torch.no_grad()
def masked_copy(
    model: nn.Module, groups: Sequence[Coupling], gone: Sequence[Tensor], scaled: Sequence[SliceNormed] = ()
) -> nn.Module:
    """A copy of the model in which all that writes or scales the channels ``gone`` (Boolean) is zero, and
    recorded as such; of weights that are ``scaled`` to a norm, what is left stays what it was.
    """
    model = copied(model)
    norms = {weight: slice_norms(model, weight) for weight in scaled}
    whole = {(weight.v, weight.dim) for weight in scaled}  # of these, g is zero; 0 / ‖0‖ would be no number
    weights, modules = dict(model.named_parameters()), dict(model.named_modules())
    for coupling, dead in zip(groups, gone, strict=True):
        for member in coupling.of("writes"):
            index = member.index[dead[member.channel]]
            if member.name in weights and len(index) and (member.name, member.dim) not in whole:
                weight = weights[member.name]
                index = index.to(weight.device)
                owner, leaf = modules[member.name.rpartition(".")[0]], member.name.rpartition(".")[2]
                earlier = record_at(owner, leaf)[1]
                kept = torch.ones_like(weight, dtype=torch.bool) if earlier is None else earlier.clone()
                owner.register_buffer(
                    KEPT.format(leaf), kept.index_fill_(member.dim, index, False), persistent=False
                )
                weight.index_fill_(member.dim, index, 0)
    for weight, before in norms.items():
        rescale(model, weight, before)
    return model


def slice_norms(model: nn.Module, scaled: SliceNormed) -> Tensor:
    """‖v‖ of every slice of a weight g · v / ‖v‖."""
    v = model.get_parameter(scaled.v).detach().double()
    return v.transpose(0, scaled.dim).flatten(1).norm(dim=1)


def rescale(model: nn.Module, scaled: SliceNormed, before: Tensor) -> None:
    """g ← g · ‖v‖ / ‖v before a cut‖: the weights that are left stay what they were."""
    after = slice_norms(model, scaled)
    if not torch.equal(before, after):
        g = model.get_parameter(scaled.g)
        shape = [-1 if dim == scaled.dim else 1 for dim in range(g.ndim)]
        ratio = torch.where(before > 0, after / before, 1.0).to(g.device)
        g.data = (g.detach().double() * ratio.reshape(shape)).to(g)


def without_slices(tensor: Tensor, dim: int, index: Tensor) -> Tensor:
    """The tensor less some slices of a dimension."""
    keep = torch.ones(tensor.shape[dim], dtype=torch.bool)
    keep[index] = False
    return tensor.index_select(dim, keep.nonzero().flatten().to(tensor.device))


def cut(model: nn.Module, cuts: Cuts) -> nn.Module:
    """The model itself with slices cut out of its tensors, and its layers' sizes put right."""
    lost: dict[str, dict[int, Tensor]] = {}
    for (name, dim), index in cuts.items():
        lost.setdefault(name, {})[dim] = index
    modules = dict(model.named_modules(remove_duplicate=False))
    replaced: dict[int, tuple[Tensor, dict[int, Tensor]]] = {}
    both = (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False))
    for name, old in [pair for tensors in both for pair in tensors]:
        if name in lost and id(old) not in replaced:
            new = old.detach()
            for dim, index in lost[name].items():
                new = without_slices(new, dim, index)
            new = new.contiguous()
            new = nn.Parameter(new, old.requires_grad) if isinstance(old, nn.Parameter) else new
            replaced[id(old)] = new, lost[name]
        if id(old) in replaced:  # a tied weight stays tied
            owner, _, leaf = name.rpartition(".")
            new, dims = replaced[id(old)]
            setattr(modules[owner], leaf, new)
            cut_record(modules[owner], leaf, old.shape, dims)
    for name, module in model.named_modules():
        resize(module, groups=groups_left(module, cuts.get((f"{name}.weight".removeprefix("."), 0))))
    return refit_attention(model)


def groups_left(layer: nn.Module, gone: Tensor | None) -> int | None:
    """How many groups a convolution has once it lost rows: fewer only where whole groups went."""
    if not isinstance(layer, (*CONV, *TRANSPOSED)) or layer.groups == 1 or gone is None:
        return None
    rows = (layer.in_channels if isinstance(layer, TRANSPOSED) else layer.out_channels) // layer.groups
    lost = (gone // rows).unique(return_counts=True)[1]
    return layer.groups - len(lost) if bool((lost == rows).all()) else layer.groups


def cut_record(owner: nn.Module, leaf: str, shape: torch.Size, lost: Mapping[int, Tensor]) -> None:
    """Cut the grid and the mask that are recorded beside a weight as the weight was cut."""
    for form, record in zip((STEP, KEPT), record_at(owner, leaf), strict=True):
        if record is None:
            continue
        record = full_rank(record, len(shape))
        for dim, index in lost.items():
            if record.shape[dim] > 1:  # one for each slice, or for blocks of them
                slices = record.repeat_interleave(shape[dim] // record.shape[dim], dim)
                record = without_slices(slices, dim, index)
        owner.register_buffer(form.format(leaf), record.contiguous(), persistent=False)


def check_optimizer(optimizer: Optimizer | None) -> None:
    """Raise for optimizers whose state cannot be cut slice by slice."""
    if optimizer is None:
        return
    odd = any(
        isinstance(value, Tensor) and value.numel() > 1 and value.shape != parameter.shape
        for parameter, state in optimizer.state.items()
        for value in state.values()
    )
    if odd or isinstance(optimizer, LBFGS | Adafactor):
        raise TorchliftError(
            f"the state of {type(optimizer).__name__} mixes all entries of a weight and cannot be cut: "
            "shrink without it and make a new one."
        )


def carry(optimizer: Optimizer, before: nn.Module, after: nn.Module, cuts: Cuts) -> None:
    """Point the optimizer at the parameters of the cut model, its state cut alike; new biases join."""
    names = {parameter: name for name, parameter in before.named_parameters()}
    new = dict(after.named_parameters())
    group_of: dict[str, dict[str, object]] = {}
    for group in optimizer.param_groups:
        moved: list[nn.Parameter] = []
        for parameter in group["params"]:
            if parameter not in names:
                moved.append(parameter)
                continue
            name = names[parameter]
            group_of[name] = group
            moved.append(new[name])
            state = optimizer.state.pop(parameter, None)
            if state is not None:
                optimizer.state[new[name]] = cut_state(state, parameter, name, cuts)
        group["params"] = moved
    for name, parameter in new.items():
        if name not in set(names.values()):  # a bias made by folding trains with the weight beside it
            group = group_of.get(f"{name.rpartition('.')[0]}.weight".removeprefix("."))
            if group is not None:
                group["params"].append(parameter)  # pyright: ignore[reportAttributeAccessIssue]


def cut_state(state: Mapping[str, object], parameter: Tensor, name: str, cuts: Cuts) -> dict[str, object]:
    """One parameter's state with the tensors of its shape cut."""
    small: dict[str, object] = {}
    for key, value in state.items():
        if isinstance(value, Tensor) and value.ndim and value.shape == parameter.shape:
            for (owner, dim), index in cuts.items():
                if owner == name:
                    value = without_slices(value, dim, index)
        small[key] = value
    return small
