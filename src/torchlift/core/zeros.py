"""Zeros made on purpose: which weights hold theirs, so that pruned stays pruned through every later fit.

A projection that prunes marks the weights it cut, by their names, on the modules that own them; the mark
is an attribute, not a tensor, and the zeros themselves are the mask. While a marked weight is trained its
zeros have no gradient and no way back; while it is lifted, the lifted weight is multiplied by the mask.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from torchlift.core.node import original_parameters

MARK = "_holds_zeros_of"


def owner_of(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    """The module a dotted parameter name belongs to, and the name there."""
    owner, _, leaf = name.rpartition(".")
    return module.get_submodule(owner), leaf


def mark_zeros(module: nn.Module, names: Iterable[str]) -> None:
    """From now on the zeros of these weights are held."""
    for name in names:
        owner, leaf = owner_of(module, name)
        setattr(owner, MARK, tuple(sorted({*getattr(owner, MARK, ()), leaf})))


def release_zeros(module: nn.Module) -> None:
    """Forget all marks: every weight trains freely."""
    for part in module.modules():
        vars(part).pop(MARK, None)


def marked(module: nn.Module) -> list[str]:
    """The names of the weights whose zeros are held; tied weights under each of their names."""
    named = dict(module.named_parameters(remove_duplicate=False))
    owned = {name: getattr(owner_of(module, name)[0], MARK, ()) for name in named}
    held = {id(named[name]) for name, leaves in owned.items() if name.rpartition(".")[2] in leaves}
    return [name for name, parameter in named.items() if id(parameter) in held]


def zero_masks(module: nn.Module) -> dict[str, Tensor]:
    """1{w ≠ 0} of every weight whose zeros are held, and which has some."""
    found = {name: module.get_parameter(name).detach() != 0 for name in marked(module)}
    return {name: mask for name, mask in found.items() if not bool(mask.all())}


def held_weights(problem: nn.Module) -> list[tuple[nn.Parameter, Tensor]]:
    """The trainable weights of a problem whose zeros are held, each once, with its mask in its own dtype."""
    found = {id(p := problem.get_parameter(name)): (p, mask) for name, mask in zero_masks(problem).items()}
    return [(p, mask.to(p.dtype)) for p, mask in found.values() if p.requires_grad]


def looks_pruned(owner: nn.Module, weight: Tensor) -> bool:
    """Whether zeros in a given matrix were cut, not initialized: some, not all, among values that differ.

    Identity and Dirac initializations have one value beside zero; an embedding's padding row is its own.
    """
    rest, padding = weight.detach(), getattr(owner, "padding_idx", None)
    if isinstance(owner, nn.Embedding | nn.EmbeddingBag) and padding is not None:
        rest = torch.cat([rest[:padding], rest[padding + 1 :]])
    if not 0 < int(rest.count_nonzero()) < rest.numel():
        return False  # most weights, and no copy is made of them
    return len(rest[rest != 0].abs().unique()) > 1


def mark_pruned(module: nn.Module) -> list[str]:
    """Mark every matrix of a given model that looks pruned; their names."""
    found = [
        name
        for name in original_parameters(module)
        if (weight := module.get_parameter(name)).ndim > 1
        and weight.is_floating_point()
        and looks_pruned(owner_of(module, name)[0], weight)
    ]
    mark_zeros(module, found)
    return found
