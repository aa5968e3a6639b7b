"""Which channels stand and fall together, as found by following the model's computation."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from torchlift.deploy.follow import Place, Trace
from torchlift.deploy.probing import Example
from torchlift.deploy.tracking import traced

Role = Literal["writes", "reads"]

HIDDEN = ("the places of a kernel stay",)
"""Reasons of dimensions nobody would call channels."""


@dataclasses.dataclass(frozen=True, eq=False)
class Member:
    """A weight's part in a coupling: slice ``index[k]`` of dimension ``dim`` is channel ``channel[k]``."""

    name: str
    dim: int
    size: int
    role: Role
    index: Tensor
    channel: Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class Coupling:
    """Channels of one kind; each is cut in all members at once. ``roots`` are their labels in the trace."""

    name: str
    roots: Tensor
    members: tuple[Member, ...]
    blocked: str = ""
    """Why no channel may be cut, where that is clear at once."""

    @property
    def channels(self) -> int:
        """How many channels there are."""
        return len(self.roots)

    def of(self, role: Role) -> Iterator[Member]:
        """The members of one role."""
        return (member for member in self.members if member.role == role)


def couplings(found: Trace) -> list[Coupling]:
    """The couplings of a trace: channels that touch the same dimensions of the same weights."""
    roots = {place: found.labels.roots(place.labels) for place in found.labels.places}
    touched: dict[int, list[Place]] = {}
    for place, own in roots.items():
        for root in own.unique().tolist():
            touched.setdefault(root, []).append(place)
    frozen = found.labels.frozen()
    kinds: dict[tuple[tuple[Place, ...], str], list[int]] = {}
    for root, places in touched.items():
        kinds.setdefault((tuple(places), frozen.get(root, "")), []).append(root)
    made = [
        coupling(found, places, torch.tensor(sorted(own)), roots, why)
        for (places, why), own in kinds.items()
        if why not in HIDDEN
    ]
    return [c for c in made if any(True for _ in c.of("writes"))]


def coupling(
    found: Trace, places: tuple[Place, ...], own: Tensor, roots: Mapping[Place, Tensor], why: str
) -> Coupling:
    """One coupling from its places and channels."""
    members: list[Member] = []
    for place in places:
        index = torch.isin(roots[place], own).nonzero().flatten()
        channel = torch.searchsorted(own, roots[place][index])
        members.append(
            Member(place.name, place.dim, place.size, role(found, place), index, channel)
        )
    writer = next((m for m in members if m.role == "writes"), members[0])
    seen = any(m.role == "reads" for m in members) or bool(found.watch.reader[own].any())
    read = seen or any(bool(found.watch.reader[p.labels].any()) for p in places)
    blocked = why or ("" if read else "nothing that reads these channels was seen")
    return Coupling(writer.name.rpartition(".")[0] or writer.name, own, tuple(members), blocked)


def role(found: Trace, place: Place) -> Role:
    """Whether a dimension is summed over, or holds what is computed."""
    read = found.watch.reader[place.labels] & ~found.watch.looked_up[place.labels]
    return "reads" if bool(read.any()) else "writes"


def channel_groups(model: nn.Module, example: Example) -> dict[str, dict[str, int]]:
    """Groups for :class:`~torchlift.lifts.SoftMask`: what must be zero for a channel to be cut exactly.

    ``{coupling: {parameter: dimension}}`` with all that writes or scales the channels, one slice for each.
    Couplings that cannot be cut, or whose channels are several slices of a weight, are left out.
    """
    parameters = dict(model.named_parameters())
    groups: dict[str, dict[str, int]] = {}
    for found in couplings(traced(model, example)):
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
