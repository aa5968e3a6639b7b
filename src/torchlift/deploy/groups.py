"""Coupled channels as groups for a mask that learns."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from torchlift.deploy.feasible import usable
from torchlift.deploy.probing import Example
from torchlift.deploy.tracking import traced


def channel_groups(model: nn.Module, example: Example) -> dict[str, dict[str, int]]:
    """Groups for :class:`~torchlift.lifts.SoftMask`: what must be zero for a channel to be cut exactly.

    ``{coupling: {parameter: dimension}}`` with all that writes or scales the channels, one slice for each.
    Couplings that cannot be cut, or whose channels are several slices of a weight, are left out.
    """
    parameters = dict(model.named_parameters())
    groups: dict[str, dict[str, int]] = {}
    for found in usable(model, traced(model, example), example):
        members = [m for m in found.of("writes") if m.name in parameters]
        whole = all(m.size == found.channels == len(m.index) and in_order(m.channel) for m in members)
        if found.blocked or not whole or found.channels < 2 or not members:
            continue
        groups[unused(found.name, groups)] = {m.name: m.dim for m in members}
    return groups


def in_order(channel: Tensor) -> bool:
    """Whether slice k is channel k."""
    return torch.equal(channel, torch.arange(len(channel)))


def unused(name: str, taken: Mapping[str, object]) -> str:
    """A name not yet taken."""
    number = 2
    fresh = name
    while fresh in taken:
        fresh, number = f"{name}#{number}", number + 1
    return fresh
