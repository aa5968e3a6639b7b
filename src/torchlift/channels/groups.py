"""Coupled channels as groups for a mask that learns, and what is left when some of them are closed."""

import dataclasses
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from torchlift.channels.costs import Costs, costs_of
from torchlift.channels.couplings import Coupling, Member
from torchlift.channels.example_inputs import Example
from torchlift.channels.follow import traced
from torchlift.channels.scores import slices
from torchlift.channels.surgery import usable

SliceKey = int | tuple[int, tuple[int, ...]]
"""A dimension with one slice per channel, in order; or a dimension and the channel of each of its slices."""

Cost = Literal["parameters", "macs"]


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """The groups of channels of a model that can be cut."""

    groups: Mapping[str, Mapping[str, SliceKey]]
    couplings: Mapping[str, Coupling]
    costs: Costs

    def left(self, cost: Cost, closed: Mapping[str, Tensor]) -> float:
        """Parameters, or MACs of one sample, once the closed channels (Boolean, by group) are cut."""
        roots = [self.couplings[name].roots[gone.flatten().cpu()] for name, gone in closed.items()]
        gone = torch.cat([torch.zeros(0, dtype=torch.int64), *roots])
        return self.costs.parameters(gone) if cost == "parameters" else self.costs.macs(gone)

    def closed(self, model: nn.Module) -> dict[str, Tensor]:
        """The channels of each group that are zero in all its weights; of a whole group the first stays."""
        parameters = dict(model.named_parameters())
        closed: dict[str, Tensor] = {}
        for name, coupling in self.couplings.items():
            gone = torch.ones(coupling.channels, dtype=torch.bool)
            for member in coupling.of("writes"):
                if member.name in self.groups[name]:
                    rows = slices(parameters[member.name].detach(), member.dim)
                    zero = (rows == 0).all(1).cpu()[member.index]
                    gone[member.channel[~zero]] = False
            if bool(gone.all()):
                gone[0] = False
            closed[name] = gone
        return closed


def plan(model: nn.Module, example: Example) -> Plan:
    """Follow a model and gather its groups of channels."""
    trace, inputs = traced(model, example, values=False)
    parameters = dict(model.named_parameters())
    groups: dict[str, dict[str, SliceKey]] = {}
    couplings: dict[str, Coupling] = {}
    taken: set[str] = set()
    for coupling in usable(model, trace, inputs):
        members = [m for m in coupling.of("writes") if m.name in parameters and m.name not in taken]
        whole = [m for m in members if len(m.index) == m.size]
        matrices = [m for m in members if parameters[m.name].ndim > 1]
        if coupling.blocked or not matrices or any(m not in whole for m in matrices):
            continue
        name = unused(coupling.name, groups)
        groups[name] = {m.name: slices_of(m, coupling.channels) for m in whole}
        couplings[name] = coupling
        taken |= set(groups[name])
    return Plan(groups, couplings, costs_of(model, trace))


def channel_groups(model: nn.Module, example: Example) -> dict[str, dict[str, SliceKey]]:
    """Groups for :class:`~torchlift.lifts.SoftMask`: what must be zero for a channel to be cut exactly.

    ``{coupling: {parameter: dimension}}`` with all that writes or scales the channels; where a channel is
    several slices (a head, a unit of an LSTM), ``{parameter: (dimension, channel of each slice)}``. Couplings
    that cannot be cut are left out; :func:`~torchlift.deploy.shrinkable` says why.
    """
    return {name: dict(members) for name, members in plan(model, example).groups.items()}


def slices_of(member: Member, channels: int) -> SliceKey:
    """A member's slices, as short as they can be said."""
    if member.size == channels and torch.equal(member.channel, torch.arange(channels)):
        return member.dim
    return member.dim, tuple(member.channel.tolist())


def unused(name: str, taken: Mapping[str, object]) -> str:
    """A name not yet taken."""
    number = 2
    fresh = name
    while fresh in taken:
        fresh, number = f"{name}#{number}", number + 1
    return fresh
