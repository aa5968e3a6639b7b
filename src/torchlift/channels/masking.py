"""Channels set to zero, as a group mask leaves them."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from torchlift.channels.copies import copied
from torchlift.channels.couplings import Coupling
from torchlift.core.stored import record_of, store


def masked(
    model: nn.Module, found: Sequence[Coupling], gone: Sequence[Tensor], *, own: bool = False
) -> nn.Module:
    """A copy of the model in which all that writes or scales the channels ``gone`` (Boolean) is zero.

    ``own``: the model itself.
    """
    model = model if own else copied(model)
    known = dict(model.named_parameters())
    for coupling, dead in zip(found, gone, strict=True):
        for member in coupling.of("writes"):
            if member.name in known:
                weight = known[member.name]
                index = member.index[dead[member.channel]].to(weight.device)
                kept = torch.ones_like(weight, dtype=torch.bool).index_fill_(member.dim, index, False)
                earlier = record_of(model, member.name)[1]
                store(model, member.name, kept=kept if earlier is None else kept & earlier)
    return model
