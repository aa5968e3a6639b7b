"""Models that come pruned from somebody else: their zeros become a mask, once, when a fit starts."""

import torch
from torch import Tensor, nn

from torchlift.core.node import original_parameters
from torchlift.core.stored import owner_of, recorded, store, stored


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


def record_pruned(module: nn.Module) -> list[str]:
    """Record a mask for every matrix that has no record and looks pruned; their names.

    Records that no longer hold are dropped first, with a warning.
    """
    stored(module)
    names_on_record = {name for name, _, _ in recorded(module)}
    pruned = [
        name
        for name in original_parameters(module)
        if name not in names_on_record
        and (weight := module.get_parameter(name)).ndim > 1
        and weight.is_floating_point()
        and looks_pruned(owner_of(module, name)[0], weight)
    ]
    for name in pruned:
        store(module, name, kept=module.get_parameter(name) != 0)
    return pruned
